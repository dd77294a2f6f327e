// Buffers: their properties, and their addresses in the CTA's memory.
#include "emulator/compile.h"
#include "emulator/memory.h"
#include "ir/rewrite.h"
#include "support/numbers.h"

static const Buf *storage_root(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static int add_mem(Compiler *c, const Buf *buf) {
    Mem mem = {.buf = buf,
               .scope = buf->scope,
               .type = buf->type,
               .rank = buf->rank,
               .bytes = type_bytes(buf->type),
               .unit = 1,
               .ready = STATE_READY,
               .local = -1,
               .offset = -1,
               .wide = c->many};
    mem.elements = 1;
    for (int d = buf->rank - 1; d >= 0; d--) {
        mem.shape[d] = buf_extent(buf, d);
        mem.stride[d] = mem.elements;
        mem.dynamic |= mem.shape[d] < 0;
        mem.elements *= mem.shape[d] < 0 ? 1 : mem.shape[d];
        mem.shape_slots[d] = -1;
    }
    if (buf->scope == SCOPE_LOCAL) mem.local = c->locals++;
    mem.written = buf->scope != SCOPE_GLOBAL || buf->is_scratch || buf->mode != MODE_IN || c->code->reference;
    vec_push(c->arena, &c->mems, mem);
    map_put(c->mem_of, buf, (void *)(intptr_t)c->mems.count);
    return c->mems.count - 1;
}

int compile_mem(Compiler *c, const Buf *buf) {
    intptr_t found = (intptr_t)map_get(c->mem_of, buf);
    return found ? (int)found - 1 : add_mem(c, buf);
}

// ---- storage: addresses of shared buffers and fragments in the CTA's memory ----
static int64_t storage_bytes(const Mem *mem) {
    int64_t elements = mem->elements * mem->bytes, space = buf_space(mem->buf);
    return space > elements ? space : elements;
}

static void place_shared(Compiler *c, bool allocated) {
    int64_t top = 0;
    for (int pass = 0; pass < 3; pass++) {   // buffers with an offset; without; aliases
        for (int i = 0; i < c->mems.count; i++) {
            Mem *mem = &c->mems.items[i];
            if (mem->scope != SCOPE_SHARED || mem->offset >= 0) continue;
            bool alias = mem->buf->alias_of && !(allocated && mem->buf->offset >= 0);
            if (pass == 0 && allocated && mem->buf->offset >= 0) mem->offset = mem->buf->offset;
            else if (pass == 1 && !alias) mem->offset = round_up(top, 1024);
            else if (pass == 2) mem->offset = c->mems.items[compile_mem(c, storage_root(mem->buf))].offset;
            if (mem->offset >= 0 && mem->offset + storage_bytes(mem) > top) top = mem->offset + storage_bytes(mem);
        }
    }
    c->code->shared_bytes = round_up(top, 16);
}

static void place_fragments(Compiler *c) {
    int64_t bytes = 0, elements = 0;
    for (int i = 0; i < c->mems.count; i++) {
        Mem *mem = &c->mems.items[i];
        if (mem->scope != SCOPE_FRAGMENT) continue;
        mem->offset = bytes;
        mem->first_state = elements;
        bytes += round_up(mem->elements * mem->bytes, 16);
        elements += mem->elements;
    }
    c->code->fragment_bytes = bytes;
    c->code->fragment_elements = elements;
}

void compile_cluster(Compiler *c) {
    Code *code = c->code;
    const Stmt *grid = code->func->kind == FUNC_KERNEL ? func_grid(code->func) : NULL;
    code->cluster = grid ? func_cluster(code->func) : 1;
    for (int i = 0; i < MAX_RANK; i++)
        code->extents[i] = code->cluster > 1 && i < 3 && grid->grid.cluster[i] > 1 ? grid->grid.cluster[i] : 1;
    code->padded_threads = round_up(code->block_threads, code->cluster > 1 ? LANES * WARPGROUP : LANES);
}

// What is written to a buffer is lost to those with the same storage. (At thread stage their offsets say what remains.)
static void number_owners(Compiler *c) {
    for (int i = 0; i < c->mems.count; i++) {
        int owner = 1;
        if (!c->mems.items[i].buf->alias_of || c->mems.items[i].scope != SCOPE_SHARED) continue;
        const Buf *root = storage_root(c->mems.items[i].buf);
        for (int j = 0; j < i; j++) owner += c->mems.items[j].buf != root && storage_root(c->mems.items[j].buf) == root;
        c->mems.items[i].ready |= owner % STATE_OWNERS * STATE_OWNER;
    }
}

void compile_storage(Compiler *c) {
    for (int i = 0; i < c->mems.count; i++)   // roots of aliases that nothing names
        if (c->mems.items[i].buf->alias_of) compile_mem(c, storage_root(c->mems.items[i].buf));
    place_shared(c, c->code->func->stage == STAGE_THREAD);
    if (c->code->func->stage == STAGE_TILE) number_owners(c);
    place_fragments(c);
    int granule = 8;
    for (int i = 0; i < c->mems.count; i++) {
        const Mem *mem = &c->mems.items[i];
        while (mem->scope == SCOPE_SHARED && (mem->bytes % granule || mem->offset % granule)) granule /= 2;
    }
    c->code->granule = granule;
    for (int i = 0; i < c->mems.count; i++) {
        Mem *mem = &c->mems.items[i];
        if (mem->type == TYPE_MBARRIER) c->code->mbarrier_count += (int)mem->elements;
        if (mem->scope != SCOPE_SHARED) continue;
        mem->unit = mem->bytes / granule;
    }
}
