// Shared declarations of codegen/, not for other folders. Comes in: a module whose kernels are at thread stage
// (codegen.h). Goes out: one PTX text, and from it a cubin. The files, in the order in which a kernel meets them:
//
//     parallel.c         divides the kernels into units and compiles these on several threads
//     llvm_errors.c      keeps an error inside LLVM from ending the process
//     codegen.c          a unit: its kernels, their parameters and attributes
//     stmt.c             control flow: loops, ifs, roles
//     expr.c             expressions                             math.c              scalar functions
//     convert.c          casts between scalar types              packed_convert.c    casts to 16-bit floats, in pairs
//     address.c          addresses and index widths              register_arrays.c   per-thread arrays as registers
//     ops.c              operands and the dispatch of operations with effects; then one file per family:
//       sync.c           barriers, fences, lanes                 memory.c            vectors, cp.async, atomics
//       mma.c            ldmatrix, stmatrix, mma                 wgmma.c             matrix instructions of warpgroups
//       async.c          mbarriers, TMA, the async proxy         cluster.c           CTAs of a cluster
//     types.c            types, intrinsics, small builders       debug_lines.c       source lines
//     passes.c           LLVM's passes, emission of PTX
//     merge_ptx.c        merges the units' texts
//     ptxas.c            PTX to cubin, and recovery from spills (assembler.h)
//       run_ptxas.c      by ptxas (process.h: process.c)         nvjitlink.c         by libnvJitLink
//     disassemble.c      machine code as text
//
// Values. A scalar is an LLVM value of its value type: bool i1, integers iN, f16 half, bf16 bfloat, f32, f64; e4m3 and
// e5m2 are i8 (their bits). An i64 expression whose value provably fits 32 bits is an i32 instead ("narrow"): see
// address.c. In memory bool is one byte.
#pragma once
#include "codegen/codegen.h"
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/match.h"
#include "support/map.h"
#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

typedef LLVMValueRef Value;
typedef LLVMBasicBlockRef Label;

enum { CLUSTER_SPACE = 7 };   // address space of shared memory of all CTAs of a cluster

// A scalar variable: its value, or the stack slot of a `var` (mem2reg makes it a register).
typedef struct VarPlace {
    Value value;
    bool in_memory;
    int loops;   // around the place where it gets its value
} VarPlace;

// A `local` array: `slots` hold `pack` elements each (one 32-bit register, or one element of 32 bits and more).
typedef struct RegisterArray {
    const char *name;
    bool reported;   // an index outside of it
    Type type;
    int bits;        // of an element in memory
    int64_t count;   // elements
    int pack;        // elements in a slot
    LLVMTypeRef element, slot_type;
    Value *slots;
    struct {   // the element that was set last, for the one behind it. block NULL: none
        int64_t index;
        Value value, before;   // before: its slot
        LLVMBasicBlockRef block;
    } last;
} RegisterArray;

// The threads that run a piece of code: those of a role, or of the CTA.
typedef struct Role {
    int64_t first, count;   // threads
    int barrier;            // the named barrier that is the role's own; 0: the CTA's
    Value member;           // its number in an array, i32, whose barriers follow downwards; NULL: it is in none
} Role;

// A unit of work: some of a module's kernels, compiled by one thread as one LLVM module.
typedef struct Unit {
    int first, end;   // functions of the module
    int64_t weight;   // roughly proportional to the compile time
    bool alone;       // there is no other
    bool emit_llvm;
    const char *ptx, *llvm;         // NULL: not compiled
    double build, optimize, emit;   // seconds
} Unit;

// What all units of a module share.
typedef struct Common {
    const Module *module;
    const CodegenOptions *options;
    bool has_wgmma;   // in some kernel of the module
    bool coalesces;   // some kernel has @coalesce
} Common;

// ---- the state of a unit, by what it serves ----

// LLVM's objects, which with_llvm makes and releases.
typedef struct LlvmState {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef entry;   // stands before the end of the entry block: stack slots
    LLVMTargetMachineRef machine;
    bool loads_of_peers;       // in the module
    LLVMMemoryBufferRef ptx;   // until it is copied
    char *message;             // until it is copied
    StrMap *strings;           // text -> global constant
} LlvmState;

typedef struct LlvmTypes {
    LLVMTypeRef i1, i8, i16, i32, i64, f16, bf16, f32, f64, none, global_pointer, shared_pointer, pointer;
} LlvmTypes;

typedef struct DebugLines {
    LLVMDIBuilderRef builder;   // NULL: no lines
    Map *files;                 // file index + 1 -> DIFile
    LLVMMetadataRef scope;      // the kernel's subprogram
} DebugLines;

// The kernel that is emitted: its threads, its variables, and the position in its control flow.
typedef struct KernelState {
    const Func *func;
    Value function;
    Facts *facts;
    Map *vars;                 // Var -> VarPlace
    Map *tensors;              // Buf (global) -> pointer value
    int64_t threads;           // of the CTA, or of all CTAs that share a tile
    const Expr *grid_extent;   // inside the kernel its value is %nctaid
    Value thread;              // index in the CTA (or among those of all its CTAs), i32
    Value warp;                // of the thread, provably equal for its lanes; NULL: the kernel has no roles
    Role role;
    int role_count;            // roles emitted so far
    Label break_to;            // behind the innermost loop
    int loops;                 // around the statement, those that are unrolled not counted
    int unrolled;              // loops around it that are
    int conditions;            // around it that are no constants, within the outermost of them
    bool into_registers;       // the value at hand goes there
    bool exact;                // inside ieee()
    Map *elected;              // tensor maps that a thread which a branch elects still has to prefetch
    bool waits_for_launch;     // @waits_for_launch: kernels launched before may still run until dependency_wait
    bool has_mma;              // @has_mma
    bool reported[OP_COUNT];   // operations that the target does not have
    Span place;                // of the statement that is emitted
    int64_t statements;        // emitted so far
    bool abandoned;            // reported as too large: the rest is not emitted
} KernelState;

// Addresses, and what is known of index expressions (address.c).
typedef struct AddressState {
    Value shared_symbol;   // the CTA's dynamic shared memory
    Value shared;          // the address where it begins
    Value shared_units;    // the same as matrix descriptors count, i32; NULL: no wgmma in the module
    Map *shared_offsets;   // Buf -> byte offset + 1
    Map *scopes;           // Block -> what is known about expressions there
    Map *known;            // of the block that is emitted: Expr -> bits
    Map *offsets;          // Region or Expr of an access -> its offset expression
    Map *ready;            // Region, Expr or Stmt of an access -> its address, computed ahead
    Map *lets;             // Var -> its value, where offsets may look into it
} AddressState;

// `local` arrays (register_arrays.c).
typedef struct RegisterState {
    Map *arrays;                   // Buf -> RegisterArray
    VEC(RegisterArray *) packed;   // those of floats, several in a register
    Value zero;                    // opaque to the optimizer
    VEC(const Buf *) wgmma;        // those with @wgmma_registers whose declarations are open
} RegisterState;

// CTAs that work on one tile, and CTAs of a hardware cluster (cluster.c).
typedef struct ClusterState {
    int64_t ctas;   // that share a tile
    bool started;   // all of them are known to run
    bool chosen;    // the launch chooses its shape, ...
    Value logs;     // and gives the logarithms of the extents, in the last parameter
    bool scope;     // @cluster_scope
} ClusterState;

typedef struct Gen {
    const Common *common;
    const Module *module;
    const CodegenOptions *options;
    const Target *target;
    const Unit *unit;
    Arena *arena;
    Failure *failure;
    DiagSink *sink;   // for reports (names of files are the module's sink's)
    LLVMBuilderRef builder;
    LlvmState llvm;
    LlvmTypes types;
    DebugLines debug_lines;
    KernelState kernel;
    AddressState address;
    RegisterState registers;
    ClusterState cluster;
} Gen;

// ---- units of work ----
// codegen.c: compiles a unit; everything is put into `arena`. Without `ptx`: reported to `sink`.
void compile_unit(const Common *common, Arena *arena, Failure *failure, DiagSink *sink, Unit *unit);
// parallel.c: divides the kernels into units; one unit if LLVM's text is wanted, since that is one text.
int make_units(const Module *module, bool emit_llvm, Unit **units);
// All units, on as many threads as there are processors; texts are in the module's arena. False: reported.
bool compile_units(const Common *common, int count, Unit *units);
// merge_ptx.c: one PTX text of those of several units.
const char *merge_ptx(Arena *arena, int count, const Unit *units);

// ---- types.c ----
void types_init(Gen *gen);
LLVMTypeRef llvm_value_type(Gen *gen, Type type);
LLVMTypeRef memory_type(Gen *gen, Type type);
Value to_memory(Gen *gen, Type type, Value value);   // bool -> byte
Value from_memory(Gen *gen, Type type, Value value);
Value const_i32(Gen *gen, int64_t value);
Value const_i64(Gen *gen, int64_t value);
Value const_f32(Gen *gen, double value);
bool value_const(Value value, int64_t *constant);   // an integer constant
// Calls an intrinsic (or any function) by its full name; argument types are those of the arguments.
Value call_named(Gen *gen, const char *name, LLVMTypeRef result, int count, Value *args);
#define CALL(gen, name, result, ...)                                                                                   \
    call_named(gen, name, result, COUNT_OF(((Value[]){__VA_ARGS__})), (Value[]){__VA_ARGS__})
void mark_call(Gen *gen, Value call, const char *attribute);
Value build_bitcast(Gen *gen, Value value, LLVMTypeRef type);
Value string_constant(Gen *gen, const char *text);
Label new_label(Gen *gen, const char *name);
void go_to(Gen *gen, Label label);   // branches there and goes on there
Value stack_slot(Gen *gen, LLVMTypeRef type, const char *name);
// Inline assembly: side effects, executed by all threads of the group or none.
Value build_asm(Gen *gen, const char *text, const char *constraints, LLVMTypeRef result, int count, Value *args);
// Without effects, so that it may move.
Value build_pure_asm(Gen *gen, const char *text, const char *constraints, LLVMTypeRef result, int count, Value *args);

// ---- address.c ----
typedef struct Known {
    bool narrow, nonnegative;
} Known;
Known known_of(Gen *gen, Expr *expr);   // of an i64 expression
// A comparison in an unrolled loop, whose iterator is q: `q * 8 + rest > bound` as `constant > bound - rest`. What changes
// from copy to copy is then a constant, and the other side is computed once. False: it is none.
typedef struct Step {
    int64_t constant;
    Value bound;   // i32
} Step;
bool emit_step(Gen *gen, Expr *comparison, Step *out);
Value fit_bits(Gen *gen, Value value, int bits, bool nonnegative);   // i32 <-> i64, for values that fit
// Of an element in global or shared memory; `key` stands for the access in the program.
Value memory_address(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key);
Value tensor_base(Gen *gen, const Buf *buf);          // the address of a parameter
Value place_address(Gen *gen, const Region *place);   // of a region's first element, global or shared
Value peer_place(Gen *gen, const Region *place, Value rank, int64_t *alignment);   // in that CTA of the cluster
Value place_units(Gen *gen, const Region *place);   // of one in shared memory, as matrix descriptors count it, i32
Value shared_units(Gen *gen, Value address);        // a shared address, as they count it
// Computes the address of an access that is under a condition before the branch: what the addresses of the next
// accesses have in common with it is then computed once.
void prepare_address(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key);
void prepare_place(Gen *gen, const Region *place);
int64_t register_index(Gen *gen, Buf *buf, int count, Expr *const *indices);
int64_t place_register_index(Gen *gen, const Region *place);
Expr *const *place_indices(Gen *gen, const Region *place);
void lay_out_shared(Arena *arena, const Func *kernel, Map *offsets, int64_t *bytes);
void remember_let(Gen *gen, const Var *var, Expr *value);
void mark_read_only(Gen *gen, const Buf *buf, Value load);

// ---- register_arrays.c ----
void declare_register_array(Gen *gen, Buf *buf);
Value hidden_zero(Gen *gen);         // a zero opaque to the optimizer
void keep_arrays_packed(Gen *gen);   // across a barrier
RegisterArray *register_array(Gen *gen, const Buf *buf);
Value register_get(Gen *gen, RegisterArray *array, int64_t index);
void register_set(Gen *gen, RegisterArray *array, int64_t index, Value value);
// `bits` wide pieces of consecutive elements as integers (or the element itself where it is as wide): the form of
// memory accesses and of matrix instructions.
Value register_get_bits(Gen *gen, RegisterArray *array, int64_t index, int bits);
void register_set_bits(Gen *gen, RegisterArray *array, int64_t index, int bits, Value value);

// ---- expr.c ----
Value emit_expr(Gen *gen, Expr *expr);                  // of its value type
Value emit_index(Gen *gen, Expr *expr);                 // the same, but i64 may be narrow
Value emit_i32(Gen *gen, Expr *expr);                   // an integer, cut to or extended to i32
Value emit_value_as(Gen *gen, Expr *expr, Type type);   // converted, as memory holds it
Value build_quotient(Gen *gen, Value a, Value b);       // of f32
Value emit_float_binary(Gen *gen, BinaryOp op, Type type, Value a, Value b);
bool is_lazy(const Expr *expr);   // must not be evaluated unless it is needed

// ---- convert.c ----
Value emit_convert(Gen *gen, Value value, Type from, Type to);
// Two 8-bit floats, bytes `at` (0 or 2) and the next of an i32, to a pair of f16 or bf16; NULL: only one by one.
// Two conversions of f32 to 8-bit floats as one, of 16 bits; NULL: they are no such.
Value join_fp8(Gen *gen, Value low, Value high);
// Two conversions of relu(x) to 16 bits as one; NULL: they are no such.
Value join_relu(Gen *gen, Value low, Value high);
Value convert_fp8_pair(Gen *gen, Value four, int at, Type from, Type to);
Value to_compute(Gen *gen, Value value, Type type);   // floats below f32 to f32
Value from_compute(Gen *gen, Value value, Type type);

// ---- packed_convert.c ----
// A cast to f16 or bf16 of what comes from 8-bit elements of a local array, computed with its neighbour; NULL: it is
// another.
Value emit_packed_convert(Gen *gen, Expr *cast);

// ---- math.c ----
Value emit_math(Gen *gen, Expr *call);   // the pure ops

// ---- ops.c ----
typedef struct OpCall {
    OpId op;
    int count;
    Arg *args;
    Type type;           // of the result; TYPE_NONE for a statement
    const Attr *attrs;   // of a statement
    Span loc;
} OpCall;
OpCall call_of(const Stmt *stmt);   // a STMT_CALL
bool has_arg(const OpCall *call, int index);
Expr *arg_expr(Gen *gen, const OpCall *call, int index);
Region *arg_place(Gen *gen, const OpCall *call, int index);
int64_t arg_const(Gen *gen, const OpCall *call, int index);
const char *arg_word(Gen *gen, const OpCall *call, int index);
// The same by the operand's name in ops.def: ARG_PLACE(gen, call, VLOAD, dst). Ops that share a function share
// operands.
#define CALL_ARG(call, NAME, operand) ((call)->args[OPERAND_INDEX(NAME, operand)])
#define HAS_ARG(call, NAME, operand) has_arg(call, OPERAND_INDEX(NAME, operand))
#define ARG_EXPR(gen, call, NAME, operand) arg_expr(gen, call, OPERAND_INDEX(NAME, operand))
#define ARG_PLACE(gen, call, NAME, operand) arg_place(gen, call, OPERAND_INDEX(NAME, operand))
#define ARG_CONST(gen, call, NAME, operand) arg_const(gen, call, OPERAND_INDEX(NAME, operand))
#define ARG_WORD(gen, call, NAME, operand) arg_word(gen, call, OPERAND_INDEX(NAME, operand))
bool op_supported(Gen *gen, const OpCall *call);   // false: the target lacks it, and that has been reported
Value emit_op(Gen *gen, const OpCall *call);       // NULL: no result

// How an op is emitted: one of the three.
typedef struct OpEmitter {
    void (*statement)(Gen *gen, const OpCall *call);
    Value (*value)(Gen *gen, const OpCall *call);
    const char *intrinsic;   // its name: a call without operands and result
} OpEmitter;
// By family, in the file that implements it: sync.c, memory.c, mma.c, async.c, cluster.c. The rows of other ops are
// empty.
extern const OpEmitter sync_emitters[OP_COUNT], memory_emitters[OP_COUNT], mma_emitters[OP_COUNT],
    async_emitters[OP_COUNT], cluster_emitters[OP_COUNT];

// ---- sync.c ----
unsigned scope_id(Gen *gen, const char *word);   // LLVM's synchronisation scope: CTA, cluster, device, system

// ---- async.c, cluster.c ----
void prefetch_tensor_maps(Gen *gen, const Func *kernel);
void prefetch_elected(Gen *gen, const Block *arm);   // at the head of a branch: the maps by which it loads
void emit_arrival_if(Gen *gen, const OpCall *call, Value condition);        // mbarrier_arrive of one arrival
void emit_peer_arrival_if(Gen *gen, const OpCall *call, Value condition);   // peer_arrive

// ---- wgmma.c ----
bool is_wgmma(const Stmt *stmt);                        // wgmma, its fence, commit or wait
int emit_wgmma(Gen *gen, const Block *block, int at);   // the statements of that kind from `at` on: how many there were

// ---- stmt.c ----
void emit_block(Gen *gen, Block *block);
void await_cluster(Gen *gen);   // where control is uniform: until all CTAs of the cluster run
bool trades_registers(const Gen *gen, const Stmt *grid);   // roles with `regs`, on a target that can
int64_t whole_warps(const Gen *gen, int64_t threads);      // rounded up to them
void emit_if_then(Gen *gen, Value condition, void (*body)(Gen *gen, void *user), void *user);

// ---- debug_lines.c ----
void debug_lines_init(Gen *gen);
void debug_lines_kernel(Gen *gen, const Func *kernel);
void debug_lines_at(Gen *gen, Span loc);
void debug_lines_done(Gen *gen);

// ---- passes.c ----
void target_machine(Gen *gen);
void run_llvm_passes(Gen *gen);
const char *emit_ptx(Gen *gen);

// ---- llvm_errors.c ----
// Runs `work` such that an error inside LLVM, or leaving through the module's failure point, releases LLVM's objects
// (`gen`'s) before the failure goes on to the caller's failure point.
void with_llvm(Gen *gen, void (*work)(Gen *gen, void *user), void *user);
const char *take_message(Gen *gen, char *message);   // a copy in the arena; NULL: LLVM had no memory for it
