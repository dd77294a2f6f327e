// The emulator's inside: code, agents, blocks. Not for other folders. emulator.c explains how the parts work together.
//
// Slots: an agent's registers are an array of Lanes. Slot 0 and up are variables and temporaries; constants lie below,
// at slots -1, -2, ... and hold their value in every lane. A *narrow* instruction works on lane 0 alone: its operands
// are equal for all lanes of the agent. A *wide* one works on all lanes, and where it has an effect only on active
// ones.
#pragma once
#include "emulator/emulator.h"
#include "emulator/values.h"
#include "support/map.h"

enum {
    LANES = 32,
    WARPGROUP = 4,
    MAX_RANK = LAYOUT_MAX_RANK,
    MOST_REPORTS = 16,
    NAMED_BARRIERS = 16,
    CLUSTER_BARRIER = -1,   // what an agent waits at
    BULK_GROUPS = 16
};

typedef uint32_t Mask;
typedef union Lanes {
    int64_t i[LANES];
    double f[LANES];
    Word w[LANES];
} Lanes;

// ---- code: what a function is compiled to (compile.c) ----
// clang-format off
typedef enum InstrOp {
    // values; `dst`, `a`, `b`, `c` are slots
    X_MOVE, X_BROADCAST, X_ASSIGN,   // all lanes; lane 0 to all lanes; active lanes only
    X_ADD, X_SUB, X_MUL, X_DIV, X_MOD, X_AND, X_OR, X_XOR, X_SHL, X_SHR, X_MIN, X_MAX, X_CEILDIV,
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
    X_FORK, X_SPAWN, X_GRID, X_LAUNCH, X_END,     // roles, thread regions, the kernel's blocks, a program's kernels
    // memory and operations
    X_DECLARE, X_LOAD, X_STORE, X_LOCAL_LOAD, X_LOCAL_STORE, X_CALL, X_ASSUME
} InstrOp;
// clang-format on

typedef struct Instr {
    uint8_t op, type;   // type: of the result, of the operands for comparisons
    bool wide;
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

typedef struct Tile {   // a region operand of a tile op
    int mem, count;
    bool transposed;
    TileDim dims[MAX_RANK];
} Tile;

typedef struct MapCode {   // a tensor map: a parameter, and the box that TMA copies
    const Var *var;
    const char *name;
    int mem, rank, box[MAX_RANK], swizzle;   // innermost dim first
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
    const char *name;
} CallArg;

typedef struct MmaCode MmaCode;
typedef struct WgmmaCode WgmmaCode;
typedef struct Call {
    OpId op;
    bool is_async;
    int count;
    CallArg *args;
    const MmaCode *mma;
    const WgmmaCode *wgmma;
    const MapCode *line;   // of bulk_load and bulk_store
} Call;

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
    int64_t offset;         // shared, fragment: of its first byte (shared: of its first granule, times granule bytes)
    int64_t first_state;    // fragment: of its first element
    int unit;               // states and cells per element
    int local;              // index of a local array; -1
    bool wide;              // local: one array per lane (else lane 0's)
    bool watched;           // local: registers of wgmma
    bool written;           // global: some statement may write it
    const int32_t *table;   // logical element -> physical element, where a layout permutes them; NULL
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
    int cluster;              // blocks that work together; 1: each is alone
    bool dependent;           // kernels launched before may still run: dependency_wait
    int extents[MAX_RANK];    // of a cluster, by the grid's names
    int64_t padded_threads;   // of a block, to where the next one of the cluster begins to count
    bool spins;               // blocks may wait for each other: several run at once
    bool bulk;                // TMA or wgmma: there are asynchronous units
    int mbarrier_count, map_count;
    const MapCode **maps;
} Code;

Code *compile_func(const Module *module, const Func *func, const Target *target, Arena *arena);
Code *compile_expr(const Module *module, const Func *func, const Expr *expr, Arena *arena);
// Atomics, loads and stores with an order: they say themselves whether they did more than look.
static inline bool op_is_atomic(OpId op) {
    return op_is(op, OP_CLASS_ELEMENT);
}
// Nothing is different behind it, for other agents too.
static inline bool op_only_looks(OpId op) {
    return op_info(op)->result != RESULT_NONE || op == OP_BARRIER || op == OP_WARP_SYNC || op == OP_FENCE;
}

bool loop_independent(const Stmt *loop);   // parallel_references.c: its iterations do not see each other
const MmaCode *mma_compile(Arena *arena, Failure *failure, const MmaInfo *info);
const WgmmaCode *wgmma_compile(Arena *arena, Failure *failure, const Call *call);

// ---- happens-before (race.c) ----
typedef struct Clock Clock;
typedef struct Cell Cell;
typedef struct SharedCells SharedCells;
typedef struct GlobalCell GlobalCell;
typedef struct IterCell IterCell;
typedef struct Races Races;
typedef struct Machine Machine;
typedef struct Cta Cta;
typedef struct Agent Agent;

// ---- running ----
typedef struct LocalArray {
    Lanes *data;
    Mask *init;
    int64_t elements, capacity;
    int64_t shape[MAX_RANK];
    uint16_t *busy;     // watched ones, by element: wgmmas that have it
    uint8_t *touched;   // by other instructions since the last wgmma_fence
} LocalArray;

typedef struct LoopState {   // of a parallel loop
    int64_t total, base, begin[MAX_RANK], step[MAX_RANK], extent[MAX_RANK];
    const ParallelCode *code;
    int pc;
} LoopState;

typedef struct MBarrier MBarrier;
typedef struct Warpgroup Warpgroup;
typedef struct Lap Lap;
typedef struct BulkCopy BulkCopy;

typedef enum {
    AGENT_FREE,
    AGENT_READY,
    AGENT_BARRIER,
    AGENT_MBARRIER,
    AGENT_WARPGROUP,
    AGENT_CHILDREN,
    AGENT_GRID,
    AGENT_DONE
} AgentStatus;

typedef struct Copy {   // a cp.async of a warp that has not landed in all lanes
    int pc;
    const Mem *dst, *src;
    int bytes;   // of a lane's copy
    Mask pending;
    int64_t to[LANES];     // byte offset in shared memory
    int64_t from[LANES];   // element of the tensor
    int valid[LANES];      // bytes that are read
    int group[LANES];
} Copy;

// A warp of a thread region; or, with one lane, a block, a role, a program, a reference.
struct Agent {
    AgentStatus status;
    int pc;
    Mask mask, full;
    Lanes *regs;
    Mask *masks;
    LocalArray *locals;
    LoopState *loops;
    const LoopState *parallel;   // the parallel loop being run
    Cta *cta;
    Agent *parent;
    const RoleCode *role;   // NULL: the whole block
    int children;
    bool warp;              // of a thread region
    int first_thread;       // of the warp, in the cluster
    int region_threads;     // of its thread region
    int barrier, wait_pc;   // what it waits at
    Cta *receiver;          // of a copy that goes to another block too
    // cp.async
    Copy *copies;
    int copy_count, copy_capacity;
    int committed[LANES];
    // mbarrier_wait: what it waits for; lanes whose phase was over when it was last executed
    const MBarrier *awaited;
    Mask passed;
    // TMA stores, by lane: groups that are closed, that no longer read; the last that has a store; epochs of the newest
    int bulk_closed[LANES], bulk_read[LANES], bulk_last[LANES], bulk_pc;
    uint32_t bulk_epochs[LANES][BULK_GROUPS];
    // wgmma: statements of its warpgroup that it has executed, and waited for; how many there were when it closed a
    // group
    int64_t wgmma_issued, wgmma_waited;
    int64_t *wgmma_groups;   // pending, oldest first
    int wgmma_group_count, wgmma_group_capacity;
    bool wgmma_fenced;
    Lap *lap;   // livelock.c
};

typedef struct Barrier {
    int64_t expected, arrived;
    int64_t gone;   // threads of a cluster that have ended: no barrier waits for them
    Clock *clock;   // of those who arrived
} Barrier;

struct MBarrier {
    int64_t expected, pending, phase;   // arrivals of each phase, those that this one lacks
    int64_t bytes, copied, landed;      // of this phase: expected, of copies that complete on it, of those landed
    Clock *clock;                       // arrivals of the current phase
    Clock *done;                        // of all completed ones
    const Mem *mem;
    int64_t element;
    int number;             // among the block's
    uint32_t first_epoch;   // of its unit, in phase 0
    int init_thread;
    uint32_t init_epoch, announced;   // epochs of that thread; announced to the asynchronous proxy; 0: not yet
    uint32_t loaded;                  // epoch of the last copy that completes on it; 0: none
    int load_pc;
};

// ---- asynchronous units: parties of happens-before beside the threads (race.c) ----
typedef enum {
    UNIT_READS,      // of shared memory by the TMA stores of a warp
    UNIT_WRITES,     // of the tensor by them
    UNIT_WGMMA,      // of a warpgroup
    UNIT_MBARRIER,   // the copies that complete on it
} UnitKind;

typedef struct Actor {   // an operation of a unit
    uint32_t unit, epoch;
    Clock *clock;   // what was known when it started
    int pc;
} Actor;

typedef struct Pending Pending;   // a started async tile op (tile.c)

struct Cta {
    Machine *machine;
    Cta *members;       // of its cluster, in the order of their ranks
    Barrier *cluster;   // the cluster's barrier
    Mask *waited;       // by warp: lanes that have executed dependency_wait; NULL where none does
    int rank;
    int first_thread;   // of the block, in the cluster
    int64_t index;      // in the grid; -1: no kernel's
    bool live;
    Agent *root;
    uint8_t *shared, *shared_state, *fragments, *fragment_state;
    IterCell *shared_iters, *fragment_iters;
    SharedCells *cells;   // of shared memory (race.c)
    Agent **agents;
    int agent_count, agent_capacity;
    Barrier *barriers;      // named ones (0: the block's), then the roles'
    MBarrier **mbarriers;   // by 8 bytes of shared memory
    MBarrier **mbarrier_list;
    int mbarrier_count;
    BulkCopy **bulk;   // TMA copies under way
    int bulk_count, bulk_capacity;
    Warpgroup *warpgroups;
    Clock **clocks;          // what each thread knows; these three are the cluster's
    uint32_t *epochs;        // of each warp
    uint32_t *unit_epochs;   // of each unit: the group or phase that is open
    Pending *pending;
    int pending_count, pending_capacity;
};

enum { STATE_NONE = 0, STATE_READY = 1, STATE_WRITING = 2, STATE_READING = 4 };   // of an element; the last two: async

struct Machine {
    const Module *module;
    const Code *code;
    Arena *arena;   // of the launch
    Failure *failure;
    DiagSink *sink;
    EmuOptions options;
    const Target *target;
    EmuReport *report;
    EmuSite *sites;   // by instruction
    Arena *keep;      // where the report's sites go
    Random random;
    Races *races;
    Cta *ctas;   // resident blocks
    int cta_count;
    uint32_t epoch, loop_seq;
    Word *scratch[4];   // whole tiles
    int64_t scratch_size[4];
    Word *wgmma_acc;
    int reports, prints;
    Map *reported;   // pairs of places
    bool stop, races_wanted;
    int bulk_count;   // TMA copies under way, of all blocks
    uint64_t steps, most_steps;
    // In blocks that spin: how often something did more than look; as seen last, since which step, and when to look
    // closely.
    uint64_t moves, seen_moves, still_since, next_look;
};

// eval.c: runs the agent until it blocks, ends or has done `budget` instructions.
void agent_run(Agent *agent, int64_t budget);
// thread.c, tile.c: calls
void call_thread_op(Agent *agent, const Instr *in, const Call *call);
void call_tile_op(Agent *agent, const Instr *in, const Call *call);
void tile_commit(Agent *agent);
void tile_wait(Agent *agent, int64_t pending_groups);
void tile_wait_products(Agent *agent, int64_t pending);
void tile_land_all(Agent *agent);
void tile_role_ends(Agent *agent);
// copies.c: cp.async
void copy_start(Agent *agent, const Call *call);
void copy_commit(Agent *agent);
void copy_wait(Agent *agent, int64_t groups);   // until at most so many groups of each active lane are pending
void copies_land_all(Agent *agent);
// The instruction that started the copy which is writing this byte of shared memory; -1: none.
int copy_writing(const Cta *cta, int64_t byte);
// matrix.c: ldmatrix, stmatrix, mma
void matrix_move(Agent *agent, const Call *call);
void matrix_multiply(Agent *agent, const Call *call);
// memory.c
Mem *machine_mem(const Machine *machine, int mem);
void access_load(Agent *agent, const Instr *in, const Place *place, Lanes *out);
void access_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from);
void local_load(Agent *agent, const Instr *in, const Place *place, Lanes *out);
void local_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from);
void mem_declare(Agent *agent, int mem);
// Element offsets of the active lanes; returns the lanes that are in range (the others are reported where that is an
// error). `spans`: elements that follow from there, by lane; NULL: one.
Mask place_offsets(Agent *agent, const Place *place, Mask mask, const int64_t *spans, int64_t *offsets);
// Element of the agent's local array at which an access of `span` elements begins; -1: out of range and reported.
int64_t local_offset(Agent *agent, const Place *place, int lane, int64_t span);
int64_t local_place(Agent *agent, const Place *place, int lane, int64_t span);   // the same, but it is no access
// Whether it is initialised in these lanes, else reported.
bool local_ready(Agent *agent, const Mem *mem, int64_t element, Mask mask);
uint8_t *mem_data(const Cta *cta, const Mem *mem);
uint8_t *mem_state(const Cta *cta, const Mem *mem);   // NULL: all initialised
const char *element_text(Arena *arena, const Mem *mem, int64_t offset);
// Checks the state of `count` elements for reading; reports and returns false.
bool state_readable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane);
bool state_readable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count,
                       int lane);   // in the memory of another block
bool state_writable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int lane);
bool state_writable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane);
bool access_aligned(Agent *agent, const Mem *mem, int64_t offset, int64_t bytes, int lane);   // else reported
bool whole_warp(Agent *agent, const char *what);   // all its lanes are active, else reported
void state_set(const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int value);

// schedule.c: blocks and their agents
Cta *ctas_new(Machine *machine, int count);
Agent *agent_start(Cta *cta, int pc);   // with one lane
bool machine_run_blocks(Machine *machine, const Agent *host, int64_t blocks);
void agent_spawn(Agent *agent, const SpawnCode *spawn, int body);
void agent_fork(Agent *agent, const ForkCode *fork);
void agent_end(Agent *agent);
// livelock.c
bool livelocked(Machine *machine);   // all that can run wait for a value that no agent will store: reported
// barriers.c
Mask clocked(const Agent *agent);   // whose clocks the agent has: none of a whole block at tile stage
void barrier_sync(Agent *agent, const Call *call, bool waits);
void warp_sync(Agent *agent);
void mbarrier_op(Agent *agent, const Instr *in, const Call *call);
void mbarrier_transact(Cta *cta, MBarrier *barrier, int64_t bytes);      // bytes of a copy have landed
void mbarrier_started(Agent *agent, MBarrier *barrier, int64_t bytes);   // a copy that completes on it
void mbarrier_landed(Agent *agent, Cta *cta, MBarrier *barrier,
                     int64_t bytes);   // one that the agent did itself, just now
void mbarrier_peer_arrive(Agent *agent, const Instr *in, const Call *call);
// Of this block or another; NULL: out of range or not initialised, reported.
// `itself`: the thread touches it, now; else what it starts does.
MBarrier *mbarrier_of(Agent *agent, Cta *cta, const Place *place, int lane, bool itself);
const char *mbarrier_text(const Cta *cta, const MBarrier *barrier);
void fence_mbarrier_init(Agent *agent);
// bulk.c: TMA
void bulk_start(Agent *agent, const Call *call);
void bulk_commit(Agent *agent);
void bulk_wait(Agent *agent, const Call *call);
bool bulk_advance(Machine *machine);   // some copy makes some progress; false: none is under way
void bulk_agent_ends(Agent *agent);
void bulk_block_ends(Cta *cta);
int bulk_writing(const Cta *cta, int64_t byte);   // as copy_writing
// launches.c: kernels that begin while the one before runs
void dependency_wait(Agent *agent);
void dependency_check(Agent *agent, int lane, const Mem *mem, int64_t element,
                      int pc);   // before a use of global memory

// cluster.c: blocks that work together
Cta *cluster_peer(Agent *agent, int64_t rank, int lane);   // NULL: there is none, or no more; reported
void peer_load(Agent *agent, const Instr *in, const Call *call);
void peer_store(Agent *agent, const Call *call);
void cluster_barrier(Agent *agent);
void cluster_role_ends(Agent *agent);   // and its threads with it
void cluster_block_ends(Cta *cta);
// wgmma.c
Warpgroup *warpgroups_new(Machine *machine);
void wgmma_start(Agent *agent, const Call *call);
void wgmma_fence(Agent *agent);
void wgmma_commit(Agent *agent);
void wgmma_wait(Agent *agent, int64_t groups);
void wgmma_agent_starts(Agent *agent);
void wgmma_agent_ends(Agent *agent);
void registers_touched(Agent *agent, const Mem *mem, int64_t element, int64_t count);   // of a watched array

// race.c
typedef enum { TOUCH_READ, TOUCH_WRITE, TOUCH_ATOMIC } Touch;
Races *races_new(Machine *machine);
void races_start(Cta *cta);           // a block begins
void races_start_cluster(Cta *cta);   // all blocks of a cluster begin; cta is the first
void race_peer(Agent *agent, int lane, Cta *peer, const Mem *mem, int64_t element,
               Touch touch);   // in the memory of another block of the cluster
void races_meet(Cta *cta);     // each block of the cluster learns what the others wrote to global memory
// An access of another block to this one's shared memory that none of its threads is ordered after; -1: none. *byte:
// where.
int race_unfinished(Cta *cta, int64_t *byte);
void races_watch(Machine *machine, Mem *mem, int64_t elements);
void race_shared(Agent *agent, int lane, int64_t byte, int bytes, Touch touch, const Mem *mem, int pc);
void race_global(Agent *agent, int lane, const Mem *mem, int64_t element, int count, Touch touch, int pc);
void race_iteration(Agent *agent, int lane, const Mem *mem, int64_t element, bool write, int pc);
void race_release(Agent *agent, int lane, const Mem *mem, int64_t element);
void race_acquire(Agent *agent, int lane, const Mem *mem, int64_t element);
void race_fence(Agent *agent);
void race_atomic(Agent *agent, int lane, const Mem *mem, int64_t element);
void clock_arrive(Cta *cta, Clock **into, int thread);                // the thread tells `into` what it did and knows
void clock_depart(Cta *cta, Clock *from, int thread, bool arrived);   // it learns what `from` knows; it has told it all
void clock_tick(Cta *cta, int warp);                                  // after telling
void clock_merge(Cta *cta, Clock **into, const Clock *from);
void clock_drop(Cta *cta, Clock **clock);
Actor actor_start(const Cta *cta, UnitKind kind, int number, int pc);   // an operation in the unit's open epoch
void actor_acts_for(const Agent *agent, Mask lanes, Actor *actor);      // it knows what all whom it acts for know
void actor_end(Cta *cta, Actor *actor);
uint32_t actor_knows(const Cta *cta, const Actor *actor, int thread);   // epoch of that thread
void actor_shared(Cta *cta, const Actor *actor, int64_t byte, int bytes, Touch touch, const Mem *mem);
void actor_global(Agent *agent, int lane, const Actor *actor, const Mem *mem, int64_t element, int64_t count,
                  Touch touch);
uint32_t unit_epoch(const Cta *cta, UnitKind kind, int number);                         // the open one
void unit_next(Cta *cta, UnitKind kind, int number);                                    // closes it
void unit_tell(Cta *cta, Clock **clock, UnitKind kind, int number);                     // the clock learns of it
void unit_learn(Agent *agent, Mask lanes, UnitKind kind, int number, uint32_t epoch);   // threads learn up to there
uint32_t unit_known(const Agent *agent, int lane, UnitKind kind, int number);   // the last epoch that it knows of
uint32_t unit_known_best(const Cta *cta, UnitKind kind, int number);            // that some thread knows of
uint32_t thread_epoch(const Agent *agent);
void race_fence_async(Agent *agent);

// conflicts.c
void conflicts_count(Agent *agent, const Mem *mem, const int64_t *bytes_at, Mask mask, int bytes);
void conflicts_rows(Agent *agent, const Mem *mem, const int64_t *rows, int count);   // of `count` 8x8 matrices
void sectors_count(Agent *agent, const int64_t *bytes_at, Mask mask, int bytes);
void conflicts_sites(const Machine *machine, Arena *keep);   // fills the report's sites

// report.c
Diag *emu_report(Machine *machine, int pc, DiagCode code, ...);   // NULL: enough was reported, or this place before
Diag *emu_report_pair(Machine *machine, int pc, int other_pc, DiagCode code, ...);
const char *thread_text(const Agent *agent, int lane);
const char *thread_index_text(const Cta *cta, int thread);

// launch.c
bool launch_callee(Machine *caller, const LaunchCode *code, Agent *agent);   // a program's kernel or program
// Dims of func by the arguments' shapes and strides, in order of func->dims; false with *why when they do not fit.
bool bind_dims(const Module *module, const Func *func, int count, const EmuArg *args, int64_t *dims, Arena *arena,
               const char **why);
bool host_value(const Module *module, const Func *func, const Expr *expr, int count, const EmuArg *args,
                const int64_t *dims, Arena *arena, Word *out);
bool run_func(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
              Arena *keep, EmuReport *report);   // keep: memory of the report; NULL: no sites
bool run_timed(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
               Arena *keep, EmuReport *report);   // in scratch memory
// Fills the reference's tensors, from the cache where it has them. False: the reference reported something.
bool cached_reference(EmuReferenceCache *reference_cache, const Module *module, const Func *reference, int count,
                      const EmuArg *args);
// The result of a test that has passed before, of a module with the same text and with the same options. False: there
// is none.
bool cached_test(EmuReferenceCache *cache, const Module *module, Arena *scratch, const Test *test,
                 const EmuOptions *options, EmuTestResult *result);
// Keeps the result of a test that has passed without a diagnostic, of the module that cached_test saw last.
void cache_test(EmuReferenceCache *cache, const Test *test, const EmuOptions *options, const EmuTestResult *result);
const Func *choose_variant(const Module *module, const char *name, int count, const EmuArg *args);
// Runs `job` with a module whose arena lives as long as the job, and hands failures on.
void in_scratch(const Module *module, void (*job)(const Module *module, void *user), void *user);
