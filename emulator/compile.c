// Functions to code: what the emulator runs.
//
// The IR is a tree of shared expressions over variables that are found by pointer. Walking it again for every iteration
// would mean a lookup for every name, and a tree cannot be left in its middle, which a warp does at every barrier. So
// each function becomes, once per launch, a list of instructions over numbered slots (machine.h).
//
// Which values are narrow, that is equal in all lanes of a warp, is decided here: loop counters, CTA indices and all
// that is computed from them cost one operation instead of 32. A variable is *varying* (wide) when
//
//     it is the index of a thread region, or of a parallel loop's iterations, or what is read from memory,
//     or computed from something varying,
//     or assigned where only some lanes may run: deeper in divergent control flow than its declaration.
//
// The third rule refers to the others through conditions, so the analysis repeats until nothing changes. At CTA level
// (tile stage) and in references one lane runs and everything is narrow, until a parallel loop or a thread region
// begins.
//
//     thread (t in 64) {                    t wide
//         var n: i64 = 0;                   wide: assigned below in a divergent if
//         for (k in 4) {                    k narrow
//             let x = As[k, t];             wide; index slots: k narrow, t wide
//             if (x > 0) n += 1;            X_IF / X_ENDIF around an X_ASSIGN of the active lanes
//         }
//     }
//
// A reference's loop over independent iterations (each writes elements that carry its own indices, and nothing else
// that outlives it) runs as a parallel loop: 32 iterations at a time. This is what makes references fast.
#include "emulator/compile.h"

static Compiler *compiler_new(const Module *module, const Func *func, const Target *target, Arena *arena) {
    Compiler *c = NEW(arena, Compiler);
    *c = (Compiler){.module = module,
                    .arena = arena,
                    .failure = module->failure,
                    .target = target,
                    .vars = map_new(arena),
                    .mem_of = map_new(arena),
                    .const_of = map_new(arena)};
    c->code = NEW(arena, Code);
    c->code->func = roles_expanded(c->arena, func);
    c->code->reference = func->kind == FUNC_REFERENCE;
    c->code->slot_of = map_new(arena);
    c->code->granule = 8;
    constant_int(c, 0);
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf) compile_mem(c, param->buf);
        else map_put(c->code->slot_of, param->var, (void *)(intptr_t)(declare_var(c, param->var) + 1));
    }
    for (int i = 0; i < func->dims.count; i++) {
        const Var *dim = func->dims.items[i];
        map_put(c->code->slot_of, dim, (void *)(intptr_t)(declare_var(c, dim) + 1));
    }
    return c;
}

static Code *finish(Compiler *c) {
    emit(c, X_END, TYPE_I64, false, -1, -1, -1);
    compile_storage(c);
    compile_cluster(c);
    Code *code = c->code;
    code->instrs = c->instrs.items;
    code->places = c->places.items;
    code->count = c->instrs.count;
    code->consts = c->consts.items;
    code->const_count = c->consts.count;
    code->mems = c->mems.items;
    code->mem_count = c->mems.count;
    code->mem_of = c->mem_of;
    code->local_count = c->locals;
    return code;
}

Code *compile_func(const Module *module, const Func *func, const Target *target, Arena *arena) {
    Compiler *c = compiler_new(module, func, target, arena);
    c->place = func->loc;
    compile_channels(c);
    compile_block(c, &c->code->func->body);
    return finish(c);
}

Code *compile_expr(const Module *module, const Func *func, const Expr *e, Arena *arena) {
    Compiler *c = compiler_new(module, func, NULL, arena);
    c->place = func->loc;
    c->code->result = new_slot(c);
    compile_value_to(c, e, c->code->result, false);
    return finish(c);
}
