// The inside of the compiler from functions to code: what compile*.c share. compile.c explains it.
#pragma once
#include "emulator/code.h"
#include "emulator/handlers.h"
#include "ir/channels.h"

typedef struct Val {
    int slot;
    bool wide;
} Val;

typedef struct VarInfo {
    int slot, depth;
    bool varying, many;   // many: declared where all lanes run
} VarInfo;

typedef VEC(int) Patches;

typedef struct Join {   // where lanes that are off wait for the others
    struct Join *outer;
    Patches jumps;
} Join;

typedef struct Loop {
    struct Loop *outer;
    bool divergent;   // lanes leave one by one
    int masks;
    Patches exits;
    Join *join;
} Loop;

typedef struct Compiler {
    const Module *module;
    Arena *arena;
    Failure *failure;
    const Target *target;
    Code *code;
    VEC(Instr) instrs;
    VEC(Span) places;
    VEC(Word) consts;
    VEC(Mem) mems;
    Map *vars, *mem_of, *const_of;
    int next, masks, locals;
    int whiles;   // around the statement at hand
    bool many, in_thread, changed;
    bool exact;             // inside of ieee(...)
    int64_t first_thread;   // of the current role
    Channels channels;
    Loop *loop;
    Join *join;
    Span place;
} Compiler;

// ---- emitting ----
static inline int new_slot(Compiler *c) {
    int slot = c->next++;
    if (c->next > c->code->slots) c->code->slots = c->next;
    return slot;
}

static inline int new_masks(Compiler *c, int count) {
    int first = c->masks;
    c->masks += count;
    if (c->masks > c->code->masks) c->code->masks = c->masks;
    return first;
}

static inline Instr *emit(Compiler *c, InstrOp op, Type type, bool wide, int dst, int a, int b) {
    Instr in = {
        .op = (uint8_t)op, .type = (uint8_t)type, .wide = wide, .dst = dst, .a = a, .b = b, .c = -1, .target = -1};
    vec_push(c->arena, &c->instrs, in);
    vec_push(c->arena, &c->places, c->place);
    return &vec_last(&c->instrs);
}

static inline int here(const Compiler *c) {
    return c->instrs.count;
}

static inline void patch(Compiler *c, int at) {
    c->instrs.items[at].target = here(c);
}

static inline void patch_all(Compiler *c, const Patches *jumps) {
    for (int i = 0; i < jumps->count; i++) patch(c, jumps->items[i]);
}

static inline Val constant(Compiler *c, Word word) {
    const void *key = (const void *)(intptr_t)word.i;
    intptr_t found = (intptr_t)map_get(c->const_of, key);
    if (!found) {
        vec_push(c->arena, &c->consts, word);
        found = c->consts.count;
        map_put(c->const_of, key, (void *)found);
    }
    return (Val){(int)-found, false};
}

static inline Val constant_int(Compiler *c, int64_t value) {
    return constant(c, (Word){.i = value});
}

static inline int to_wide(Compiler *c, Val v) {
    if (v.wide || v.slot < 0) return v.slot;
    int slot = new_slot(c);
    emit(c, X_BROADCAST, TYPE_I64, true, slot, v.slot, -1);
    return slot;
}

static inline int fit(Compiler *c, Val v, bool wide) {
    return wide ? to_wide(c, v) : v.slot;
}

// ---- variables ----
static inline VarInfo *var_info(Compiler *c, const Var *var) {
    VarInfo *info = map_get(c->vars, var);
    if (!info) {
        info = NEW(c->arena, VarInfo);
        info->slot = -1;
        info->many = c->many;
        map_put(c->vars, var, info);
    }
    return info;
}

static inline int declare_var(Compiler *c, const Var *var) {
    VarInfo *info = var_info(c, var);
    info->slot = new_slot(c);
    return info->slot;
}

// uniformity.c: what differs between lanes
bool compile_varies(Compiler *c, const Expr *e);
bool compile_has_break(const Block *block);                                  // out of the loop around it
bool compile_divergent_break(Compiler *c, const Block *block, bool under);   // some lanes may, while others stay
void compile_analyse(Compiler *c, const Block *body);                        // of a region that all lanes run
// compile_expr.c
Val compile_value(Compiler *c, const Expr *e);
void compile_value_to(Compiler *c, const Expr *e, int slot, bool wide);   // into a variable's slot
Val compile_call(Compiler *c, OpId op, int count, const Arg *args, bool is_async, Type type);
Place *compile_place(Compiler *c, const Buf *buf, int count, Expr *const *indices);
// compile_stmt.c
void compile_block(Compiler *c, const Block *body);
// compile_storage.c
int compile_mem(Compiler *c, const Buf *buf);   // index of the buffer's Mem
void compile_cluster(Compiler *c);              // CTAs that work together
void compile_storage(Compiler *c);              // places of shared buffers and fragments

// ---- channels.c ----
void compile_channels(Compiler *c);   // at the begin of a kernel
// The channel of the call's operand or handle; NULL: of none.
const ChannelCode *compile_call_channel(Compiler *c, int count, const Arg *args);
