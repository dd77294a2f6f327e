// The launch plan of an artefact: all that a launch needs to know, without a compiler.
//
// An entry is a kernel or program of the source with its variants. A variant has a condition (`when`) of what it needs,
// the shapes of its parameters, and launch parameters: grid, threads, shared memory, symbol. Variants are tried in order,
// but of those that are compared, which have coefficients of a cost (target/launch_cost.h), the cheapest comes first. Values that depend on the
// arguments are expressions of the tile language over dims and scalars: `K % 8 == 0`, `ceildiv(M, 128)`. `A_address` is
// the base address of the tensor A; `aligned(A, 16)` becomes `A_address % 16 == 0`.
//
//     module --plan_build--> Plan --plan_write--> JSON (the manifest, a section of the cubin) --plan_read--> Plan
//                                                                arguments + Plan --plan_dispatch--> Launch (actions)
//
// In: a compiled module (build), or a manifest and arguments (read, dispatch). Out: the manifest, or the actions of a
// launch. The files of runtime/plan/:
//
//     plan             questions about plans
//     build            module -> Plan (at compile time)
//     write, read      Plan <-> JSON
//     container        the manifest as a section of the cubin
//     expr_cse         shares equal subexpressions of an entry, for read
//     scalar           a number of any scalar type
//     host_eval        evaluates an expression
//     dispatch         arguments -> variant -> actions
//     launch_cache     recent dispatches, keyed by shapes and scalars
//
// A Plan is immutable after plan_read; it lies in one arena.
#pragma once
#include "ir/ir.h"
#include "runtime/plan/scalar.h"
#include "support/strbuf.h"

// A scalar expression over the dims, scalars and addresses of a launch.
typedef struct HostExpr {
    const char *text;   // NULL: absent
    Expr *expr;         // set by plan_read; it and its operands are HostNodes (runtime/plan/expr_cse.h)
} HostExpr;

typedef struct PlanParam {   // also a program's scratch
    const char *name;
    Type type;
    bool is_tensor;
    Mode mode;
    int rank;
    HostExpr *shape;       // [rank]; a single unbound name is bound to the argument's extent, others are checked
    bool leading;          // shape[0], whose text is `..B`, stands for all leading dims of the argument as one
    HostExpr *strides;     // [rank] in elements; NULL: dense row-major
    int moved;             // dim moved - 1 is the innermost of tensor maps; 0: the last (moved_dim)
    const char *address;   // "A_address": the tensor's base address in expressions
    const char *layout;    // "[n, k] -> [n / 64, k, n % 64]": where the source's elements lie, for people; NULL: none
    const char *alias;     // the written tensor that may be the same one; NULL: none
    bool zeroed;           // scratch that is zero at the start of each kernel and must be zero at its end
} PlanParam;

// A rectangular region of a tensor, the operand of a launch or fill.
typedef struct PlanRegion {
    const char *tensor;
    int count;          // rank of the tensor; 0: the whole tensor
    HostExpr *start;    // [count]
    HostExpr *extent;   // [count]; text NULL: the dim is removed
    bool transposed;
} PlanRegion;

typedef struct PlanArg {   // exactly one member is set
    PlanRegion *region;
    HostExpr value;
} PlanArg;

typedef struct PlanStep PlanStep;
typedef VEC(PlanStep *) PlanSteps;

typedef enum { DO_LET, DO_ASSUME, DO_SCRATCH, DO_IF, DO_FILL, DO_LAUNCH } PlanStepKind;

// A let or assume before the grid of a kernel, or a statement of a program.
struct PlanStep {
    PlanStepKind kind;
    const char *name;            // LET; LAUNCH: the entry
    Type type;                   // LET
    HostExpr value;              // LET, ASSUME, IF: condition, FILL
    PlanParam *scratch;          // SCRATCH
    PlanRegion *region;          // FILL
    PlanSteps then, otherwise;   // IF
    VEC(PlanArg) args;           // LAUNCH
};

enum { SWIZZLE_USUAL = 128 };   // bytes; of maps that say none

// A hidden parameter: a TMA tensor map, encoded at launch from a tensor argument.
typedef struct PlanMap {
    int at;   // its index among the kernel's parameters
    const char *tensor;
    bool merged;                // all dims but the last are one
    int windows;                // an im2col map: the dims between the first and the last; 0: tiled
    int box_rank;               // the tensor's rank; 2 of merged and im2col maps
    int box[TENSOR_MAP_RANK];   // elements, innermost dim first; of an im2col map channels and pixels
    int swizzle;                // bytes
    bool tf32;
    int lower[MOST_WINDOWS], strides[MOST_WINDOWS];   // of windows, innermost first
    HostExpr *upper;                                  // [windows]
} PlanMap;

typedef struct PlanTuned {
    const char *name;
    int64_t value;
} PlanTuned;

// A conjunction.
typedef struct PlanCondition {
    const char *text;   // NULL: true
    VEC(HostExpr) terms;
} PlanCondition;

typedef struct PlanCost {
    HostExpr extents[COST_EXTENTS];
    LaunchCost terms;
} PlanCost;

typedef struct PlanVariant {
    PlanCondition when;
    PlanCost *cost;           // NULL: none
    int compared;             // the first of those that are compared: how many from it on; 1: it is tried in its order
    int names;                // the first variant with the same parameters and dims (plan_read)
    VEC(PlanParam) params;    // the arguments of a caller
    VEC(PlanMap) maps;        // in order of `at`
    VEC(const char *) dims;   // names of dynamic dims and strides: the last parameters of the kernel, in order
    PlanSteps steps;
    VEC(PlanTuned) tuned;
    bool recorded;   // from the tuning record, for the shapes in `when`
    // kernels:
    const char *symbol;   // NULL: a program (a kernel may have a variant that is a program)
    HostExpr grid;        // number of CTAs; 0: nothing to launch
    int threads;
    int cluster[3];
    bool sets_cluster;   // the kernel runs in clusters of several shapes, and its launch says of which
    bool same_kernel;    // the variant before, in another cluster
    // Programmatic dependent launch: it may start before the previous kernel ends, if the grid has at most so many CTAs for each
    // multiprocessor. More do not run at once, and each waits. 0: it may not.
    int pdl;
    int64_t shared_bytes;                                        // dynamic shared memory
    int registers, spill_stores, spill_loads, stack, barriers;   // reported by the assembler; registers -1: unknown
    const char *how;   // for -v: clusters, roles and mechanisms; NULL: none, or the plan was read from a manifest
} PlanVariant;

typedef struct PlanEntry {
    const char *name;
    bool is_program;
    VEC(PlanVariant) variants;
    int shared;   // count of shared subexpressions (plan_read)
} PlanEntry;

// Of the device that costs are meant for; all zero: not known.
typedef struct PlanMachine {
    int64_t clock_mhz, launch_ns;   // target/target.h
    int64_t memory_bytes;           // per clock
} PlanMachine;

typedef struct Plan {
    const char *producer;   // version of tilec
    const char *target;
    PlanMachine machine;
    VEC(PlanEntry) entries;
    bool one_launch;            // it has what one launch takes, and lacks what others would
    int64_t address_unit;       // expressions use addresses only modulo this; 0: in other ways too (plan_read)
    const char *declarations;   // JSON of syntax_declarations, in a plan without entries (plan_write); NULL: none
} Plan;

// The format of the manifest; raised if a reader of the previous format would misread the new one.
enum { MANIFEST_FORMAT = 10 };
extern const char plan_leading[];   // before the first extent of a shape: PlanParam.leading
extern const char *const plan_step_names[DO_LAUNCH + 1];

const PlanEntry *plan_entry(const Plan *plan, const char *name);   // NULL when absent
bool plan_has(const Plan *plan, const PlanEntry *entry);           // compares pointers, not names

bool plan_has_costs(const Plan *plan);
// What the kernel takes: its caller's arguments, tensor maps, dims and, if its launch sets the cluster, plan_cluster_logs: the
// logarithms to the base 2 of the cluster's extents, a byte each.
static inline int plan_kernel_params(const PlanVariant *v) {
    return v->params.count + v->maps.count + v->dims.count + v->sets_cluster;
}
static inline uint64_t plan_cluster_logs(const PlanVariant *v) {
    return (uint64_t)(__builtin_ctz((unsigned)v->cluster[0]) | __builtin_ctz((unsigned)v->cluster[1]) << 8);
}
void plan_set_cluster(Arena *arena, PlanVariant *v, const int shape[2]);   // of a variant that chooses it
void plan_set_names(PlanEntry *entry);                                     // PlanVariant.names
const char *plan_condition_text(Arena *arena, const PlanCondition *condition);
// A grid's expression with {BM} for the value of the tunable BM, for variants that differ in such values alone; of several tunables
// that have a number's value, the first. No expression has braces, so `with_values` gives back what `with_names` was given.
const char *plan_with_values(Arena *arena, const PlanVariant *v, const char *text);
const char *plan_with_names(Arena *arena, const PlanVariant *v, const char *text);
void plan_write(const Plan *plan, StrBuf *out);
// Reads a manifest and parses its expressions. NULL: reported to the sink.
const Plan *plan_read(Arena *arena, Failure *failure, DiagSink *sink, const char *text, size_t length);

// ---- launching ----

// The base of an address: the number of a launch argument, or
enum { BASE_NONE = -3, BASE_ZEROED, BASE_WORKSPACE };

typedef struct LaunchArg {
    bool is_tensor;
    int base;   // base of the address; set by plan_dispatch
    uint64_t address;
    int rank;
    int64_t shape[LAYOUT_MAX_RANK], strides[LAYOUT_MAX_RANK];
    Scalar scalar;   // of type i64, bool or f64; converted to the parameter's type
} LaunchArg;

void launch_arg_dense(LaunchArg *arg);   // sets row-major strides

typedef struct LaunchDevice {
    int multiprocessors;   // the value of sms()
    int64_t max_grid;
} LaunchDevice;

// The inputs of a tensor map. (CUDA driver API, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col.)
typedef struct MapRequest {
    Type type;
    int rank, swizzle;
    bool tf32;                         // f32 that TMA rounds to tf32 on load
    int box[TENSOR_MAP_RANK];          // elements; all three arrays start at the innermost dim
    int64_t extent[TENSOR_MAP_RANK];   // elements
    int64_t stride[TENSOR_MAP_RANK];   // bytes; [0] is the element size
    uint64_t address;
    int windows;   // im2col: then box is channels and pixels; 0: tiled
    int lower[MOST_WINDOWS], upper[MOST_WINDOWS], steps[MOST_WINDOWS];   // corners and strides, innermost window first
    int base;                                                            // base of the address; not encoded
} MapRequest;

// A kernel launch or a fill, in stream order.
typedef struct Action {
    const PlanVariant *variant;   // a kernel; NULL: a fill
    int64_t grid;
    int param_count;
    uint64_t *params;   // [param_count] bits of each parameter: pointer, scalar or dim; 0 for a tensor map
    int *bases;         // [param_count] base of each address, BASE_NONE for other parameters
    MapRequest *maps;   // [variant->maps.count]
    void **slots;       // [param_count] room for what the driver takes: where each parameter's bits are
    void *map_room;     // the same for encoded tensor maps
    uint64_t address;   // fill: sets `count` elements of `width` bytes to `pattern`
    int base;           // base of that address
    int64_t count;
    int width;
    uint64_t pattern;
} Action;

typedef struct Launch {
    VEC(Action) actions;
    int64_t workspace;               // bytes of scratch in the workspace
    int64_t zeroed;                  // bytes of zeroed scratch, in the workspace or outside
    const PlanVariant *variant;      // the entry's, that was chosen; NULL from the launch cache
    double clocks;                   // that its cost predicts; negative: it has none
    int64_t extents[COST_EXTENTS];   // of its cost
} Launch;

// Memory for scratch; both addresses are 256-byte aligned.
enum { WORKSPACE_ALIGN = 256 };   // of each scratch tensor
typedef struct LaunchMemory {
    uint64_t workspace;
    uint64_t zeroed;   // zeroed scratch, already zero; 0: take it from the workspace and fill it first
} LaunchMemory;

// Makes the room that an action with a variant and its param_count needs at the driver.
void action_room(Arena *arena, Action *action);
// Chooses variants, checks `assume` contracts and computes the actions. The sizes of scratch are in `out`: dispatch
// with a zero `memory` first to learn them. False: reported.
bool plan_dispatch(Arena *arena, DiagSink *sink, const Plan *plan, const PlanEntry *entry, int count,
                   const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory, Launch *out);
// The time on the device that the chosen variant's cost predicts: not below that of reading and writing the arguments.
// 0: it has no cost, or the machine is not known.
double plan_microseconds(const Plan *plan, const Launch *launch, const LaunchArg *args);
// False, with a report: two tensors share memory, one of them is written, and they are not one tensor by an alias.
bool plan_arguments_separate(DiagSink *sink, const PlanEntry *entry, int count, const LaunchArg *args);

// ---- host expressions ----

typedef struct HostName {
    const char *name;
    Scalar value;
} HostName;

// Values of shared subexpressions that were already evaluated in this scope, by their number.
typedef struct HostValues {
    bool *known;
    Scalar *values;
} HostValues;

typedef struct HostScope {
    VEC(HostName) names;
    int multiprocessors;
    const int *cluster;   // of the variant (cluster_extent); NULL: none
    HostValues *cache;    // only for expressions of one entry of a plan; NULL: none
} HostScope;

// Evaluates an expression. False, with *why (in `arena`): a division by zero or an unknown name.
bool host_eval(Arena *arena, const HostScope *scope, const Expr *expr, Scalar *value, const char **why);
