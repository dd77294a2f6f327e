// What a function is compiled to: instructions over slots (compile*.c explain how; the map of the emulator is
// emulator.h).
//
// In: a function of any stage. Out: Code, which the machine (machine.h) runs.
//
// Slots: an agent's registers are an array of Lanes. Slot 0 and up are variables and temporaries; constants lie below,
// at slots -1, -2, ... and hold their value in every lane. A *narrow* instruction works on lane 0 alone: its operands
// are equal for all lanes of the agent. A *wide* one works on all lanes; its effects are those of active lanes.
//
// Files in order: compile.c, compile_storage.c, uniformity.c, parallel_references.c, compile_stmt.c, compile_expr.c.
#pragma once
#include "emulator/emulator.h"
#include "emulator/values.h"
#include "ir/match.h"
#include "support/map.h"

enum { LANES = 32, WARPGROUP = 4, MAX_RANK = LAYOUT_MAX_RANK, NAMED_BARRIERS = 16 };

typedef uint32_t Mask;
typedef union Lanes {
    int64_t i[LANES];
    double f[LANES];
    Word w[LANES];
} Lanes;

typedef struct Agent Agent;

// clang-format off
typedef enum InstrOp {
    // values; `dst`, `a`, `b`, `c` are slots
    X_MOVE, X_BROADCAST, X_ASSIGN,   // all lanes; lane 0 to all lanes; active lanes only
    X_ADD, X_STEP, X_SUB, X_MUL, X_DIV, X_MOD, X_AND, X_OR, X_XOR, X_SHL, X_SHR, X_MIN, X_MAX, X_CEILDIV,
    X_EQ, X_NE, X_LT, X_LE, X_GT, X_GE,
    X_NEG, X_NOT, X_BITNOT, X_ABS,
    X_FADD, X_FSUB, X_FMUL, X_FDIV, X_FMOD, X_FMIN, X_FMAX,
    X_FEQ, X_FNE, X_FLT, X_FLE, X_FGT, X_FGE,
    X_FNEG, X_FABS, X_FMA, X_MATH,   // X_MATH: `c` is the OpId
    X_SELECT, X_CAST, X_BITCAST,     // casts: `b` is the operand's type
    X_SMS, X_ALIGNED,
    // control; `target` is an instruction, `a` a condition, `b` a mask slot
    X_JUMP, X_JUMP_FALSE,
    X_IF, X_ELSE, X_ENDIF,                        // active lanes by a wide condition
    X_LOOP, X_LOOP_TEST, X_LOOP_NEXT, X_LOOP_EXIT, X_BREAK,   // loops that lanes leave one by one
    X_FOR_TEST, X_FOR_NEXT,                       // counted loops that all lanes run alike: a < b; dst += a, dst < b
    X_PARALLEL, X_PARALLEL_NEXT,                  // LANES iterations at a time
    X_FORK, X_SPAWN, X_GRID, X_LAUNCH, X_END,     // roles, thread regions, the kernel's CTAs, a program's kernels
    // memory and operations
    X_DECLARE, X_LOAD, X_STORE, X_LOCAL_LOAD, X_LOCAL_STORE, X_CALL, X_ASSUME
} InstrOp;
// clang-format on

typedef struct Instr {
    uint8_t op, type;         // type: of the result, of the operands for comparisons
    bool wide, approximate;   // approximate: a result within the promise (approximate.h)
    int dst, a, b, c, target;
    const void *extra;   // Place, Tile, Call, ... by op
} Instr;

typedef struct Place {   // an element of a buffer
    int mem, rank;
    int index[MAX_RANK];
    bool varying[MAX_RANK], any_varying;
    bool strict;                   // out of range is an error in global memory too
    const struct RegsCode *regs;   // regs(fragment)[r]: where each thread's slots are
} Place;

typedef struct RegsCode {   // element of the fragment that slot `value` of a thread holds: [value][thread]; -1: padding
    bool known;             // the fragment has a layout
    int64_t threads, values;
    const int32_t *at;
} RegsCode;

typedef struct TileDim {
    int start, extent;   // slots
    int64_t tile;
    bool dropped;
} TileDim;

typedef struct WindowCode {   // of an im2col view (ir.h)
    int positions;            // slot
    int64_t taps, stride, padding, dilation;
} WindowCode;

typedef struct Im2colCode {
    int count;
    bool merged;                  // its rows are those of the tensor with all leading dims as one
    int dims[MOST_WINDOWS + 2];   // (Im2col)
    WindowCode windows[MOST_WINDOWS];
} Im2colCode;

typedef struct Tile {   // a region operand of a tile op
    int mem, count;
    bool transposed;
    const Im2colCode *im2col;   // the dims are those of a view of the tensor; NULL: of the buffer
    TileDim dims[MAX_RANK];
} Tile;

typedef struct MapCode {   // a tensor map: a parameter, and the box that TMA copies
    const Var *var;
    const char *name;
    int mem, rank, box_rank, box[MAX_RANK], swizzle;   // innermost dim first
    int offsets;                                       // TensorMap
    bool merged;
    int64_t rows, row_bytes, pitch;
    bool tf32;     // loads round to it
    bool linear;   // no map: consecutive elements, in pieces of row_bytes
} MapCode;

typedef struct CallArg {
    bool given, has_value, constant;
    int slot;   // value, in all lanes where the call is wide
    Type type;
    int64_t number;   // of a constant
    const Place *place;
    const Tile *tile;
    const MapCode *map;
    const Im2colCode *im2col;   // of an im2col map
    const char *name;
} CallArg;

typedef struct ChannelCode ChannelCode;   // channels.h
typedef struct MmaCode MmaCode;
typedef struct WgmmaCode WgmmaCode;
typedef struct Call {
    OpId op;
    bool is_async;
    int count;
    CallArg *args;
    const MmaCode *mma;
    const WgmmaCode *wgmma;
    const MapCode *line;               // of bulk_load and bulk_store
    const ChannelCode *channel;        // of its operand or handle
    const struct OpHandler *handler;   // handlers.h; NULL: the emulator does not execute it
} Call;

// An operand by its name in ops.def: CALL_ARG(call, VLOAD, dst); without anything where the call has fewer. Ops that
// share a function share operands.
#define CALL_ARG(call, NAME, operand) (*call_arg(call, OPERAND_INDEX(NAME, operand)))
static inline const CallArg *call_arg(const Call *call, int index) {
    static const CallArg absent;
    return index < call->count ? &call->args[index] : &absent;
}

typedef struct ParallelCode {
    int count;
    struct {
        int var, begin, end, step;   // slots
    } iters[MAX_RANK];
    int state;      // index of the agent's loop state
    bool checked;   // conflicts between iterations are reported
} ParallelCode;

typedef struct SpawnCode {              // a thread region
    int count, vars[MAX_RANK], slots;   // slots below `slots` are handed down
    int64_t extents[MAX_RANK], threads;
} SpawnCode;

typedef struct RoleCode {
    const char *name;
    int64_t threads, first_thread;
    int pc, slots, barrier;
} RoleCode;

typedef struct ForkCode {
    int count;
    RoleCode *roles;
    const Block *block;   // where they stand
} ForkCode;

typedef struct LaunchCode {
    const char *callee;
    int count;
    CallArg *args;
} LaunchCode;

typedef struct GridCode {
    int count, vars[MAX_RANK], extents[MAX_RANK], slots, body;
    int64_t threads;
    bool found;
} GridCode;

// Whole-storage facts of a buffer, and where its bytes are.
typedef struct Mem {
    const Buf *buf;
    Scope scope;
    Type type;         // of its elements in memory
    int rank, bytes;   // bytes of an element
    int64_t shape[MAX_RANK], stride[MAX_RANK], elements;
    int64_t offset;        // shared, fragment: of its first byte (shared: of its first granule, times granule bytes)
    int64_t first_state;   // fragment: of its first element
    int unit;              // states and cells per element
    uint8_t ready;         // the state of an element that holds a value of this buffer
    int local;             // index of a local array; -1
    bool wide;             // local: one array per lane (else lane 0's)
    bool watched;          // local: registers of wgmma
    bool written;          // global: some statement may write it
    int shape_slots[MAX_RANK];   // dynamic extents of a local or scratch buffer, set before X_DECLARE
    bool dynamic;
    // global, by launch
    EmuTensor *tensor;
    uint8_t *data, *state;
    struct GlobalCell *cells;   // races, by element; NULL: not watched
    struct Cell *thread_cells;
    struct IterCell *iter_cells;
} Mem;

typedef struct Code {
    const Func *func;
    Instr *instrs;
    Span *places;   // by instruction
    int count, slots, masks, const_count, mem_count, local_count, parallel_count, role_count;
    Word *consts;
    Mem *mems;
    Map *mem_of;               // Buf -> Mem
    Map *slot_of;              // Var of a parameter or dim -> slot + 1
    int result;                // slot of a lone expression's value
    bool reference, threads;   // runs in f64; has thread regions
    GridCode grid;
    int64_t shared_bytes, fragment_bytes, fragment_elements, block_threads;
    int granule;              // bytes of shared memory that one state describes
    int cluster;              // CTAs that work together; 1: each is alone
    bool dependent;           // kernels launched before may still run: dependency_wait
    int extents[MAX_RANK];    // of a cluster, by the grid's names
    int64_t padded_threads;   // of a CTA, to where the next one of the cluster begins to count
    bool spins;               // CTAs may wait for each other: several run at once
    bool bulk;                // TMA or wgmma: there are asynchronous units
    int mbarrier_count, map_count, channel_count;
    int heard_slots;   // of channels that a group skips slots of
    ChannelCode **channels;
    const MapCode **maps;
} Code;

Code *compile_func(const Module *module, const Func *func, const Target *target, Arena *arena);
Code *compile_expr(const Module *module, const Func *func, const Expr *expr, Arena *arena);
// Atomics, loads and stores with an order: their handlers count a change of memory themselves.
static inline bool op_is_atomic(OpId op) {
    return op_is(op, OP_CLASS_ELEMENT);
}
// It changes no state that an agent can observe.
static inline bool op_only_looks(OpId op) {
    return op_info(op)->result != RESULT_NONE || op == OP_BARRIER || op == OP_WARP_SYNC || op == OP_FENCE;
}

bool loop_independent(const Stmt *loop);   // parallel_references.c: its iterations do not see each other
const MmaCode *mma_compile(Arena *arena, Failure *failure, const MmaInfo *info);
const WgmmaCode *wgmma_compile(Arena *arena, Failure *failure, const Call *call);
