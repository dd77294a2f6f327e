// The launch plan of an artefact: what a launch has to know, without any compiler.
//
// An entry is a kernel or program of the source with its variants, tried in order. A variant says under which condition
// (`when`) and for which shapes it serves, and how to launch: grid, threads, shared memory, symbol. All that depends on
// the arguments is text of the tile language over the names of dims and scalars: `K % 8 == 0`, `ceildiv(M, 128)`.
// `A_address` stands for the base address of the tensor A: that is how `aligned(A, 16)` is written.
//
//     module --plan_build--> Plan --plan_write--> JSON (the manifest, a section of the cubin) --plan_read--> Plan
//                                                                 arguments + Plan --plan_dispatch--> Launch (actions)
//
// A Plan is immutable once read; everything lives in the arena it was made in.
#pragma once
#include "ir/ir.h"
#include "runtime/plan/scalar.h"
#include "support/strbuf.h"

// A scalar expression over the names that are known at launch.
typedef struct HostExpr {
    const char *text;   // NULL: absent
    Expr *expr;         // filled by plan_read; it and all in it is a HostNode (runtime/plan/expr_cse.h)
} HostExpr;

typedef struct PlanParam {   // also a program's scratch
    const char *name;
    Type type;
    bool is_tensor;
    Mode mode;
    int rank;
    HostExpr *shape;       // [rank]; a lone unbound name is bound by the argument, all else is checked
    HostExpr *strides;     // [rank] in elements; NULL: dense row-major
    const char *address;   // "A_address", the name of a tensor's base address in expressions
    bool zeroed;           // scratch: each kernel finds it zero, and leaves it so
} PlanParam;

// A part of a tensor as an operand of a launch or fill.
typedef struct PlanRegion {
    const char *tensor;
    int count;          // rank of the tensor; 0: all of it
    HostExpr *start;    // [count]
    HostExpr *extent;   // [count]; text NULL: the dim is dropped
    bool transposed;
} PlanRegion;

typedef struct PlanArg {   // exactly one is set
    PlanRegion *region;
    HostExpr value;
} PlanArg;

typedef struct PlanStep PlanStep;
typedef VEC(PlanStep *) PlanSteps;

typedef enum { DO_LET, DO_ASSUME, DO_SCRATCH, DO_IF, DO_FILL, DO_LAUNCH } PlanStepKind;

// What a variant does before its grid (lets and assumes), or a program's statement.
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

// A parameter that no caller gives: a tensor map, encoded at launch from a tensor argument.
typedef struct PlanMap {
    const char *name;
    int at;   // its place among the kernel's parameters
    const char *tensor;
    int rank;                   // the tensor's
    int box[TENSOR_MAP_RANK];   // elements, the innermost dim first
    int swizzle;                // bytes
    bool tf32;
} PlanMap;

typedef struct PlanTuned {
    const char *name;
    int64_t value;
} PlanTuned;

typedef struct PlanVariant {
    HostExpr when;            // absent: always
    bool alike;               // parameters and dims are those of the variant before it (plan_read)
    VEC(PlanParam) params;    // what callers give
    VEC(PlanMap) maps;        // in order of their places
    VEC(const char *) dims;   // names of dynamic dims and strides: the kernel's last arguments, in order
    PlanSteps steps;
    VEC(PlanTuned) tuned;
    bool recorded;   // these values were measured, for the shapes that `when` names
    // kernels:
    const char *symbol;   // NULL: a program, also as a variant of a kernel
    HostExpr grid;        // blocks; 0: nothing to do
    int threads;
    int cluster[3];
    bool pdl;                                                    // may begin while the kernel before it runs
    int64_t shared_bytes;                                        // dynamic
    int registers, spill_stores, spill_loads, stack, barriers;   // as the assembler says; registers -1: unknown
    const char *how;   // what the passes chose, for people; NULL: nothing to say, or the plan was read
} PlanVariant;

typedef struct PlanEntry {
    const char *name;
    bool is_program;
    VEC(PlanVariant) variants;
    int shared;   // numbers of expressions that stand at several places (plan_read)
} PlanEntry;

typedef struct Plan {
    const char *producer;   // version of tilec
    const char *target;
    VEC(PlanEntry) entries;
    int64_t
        address_unit;   // all that expressions ask of addresses is what is left modulo this; 0: anything (plan_read)
} Plan;

// In the JSON: raised when a reader of the old format would misunderstand the new one.
enum { MANIFEST_FORMAT = 1 };
extern const char *const plan_step_names[DO_LAUNCH + 1];

const PlanEntry *plan_entry(const Plan *plan, const char *name);   // NULL when absent
bool plan_has(const Plan *plan, const PlanEntry *entry);           // this one, not one of its name

void plan_write(const Plan *plan, StrBuf *out);
// Reads a manifest and parses its expressions. NULL: reported to the sink.
const Plan *plan_read(Arena *arena, Failure *failure, DiagSink *sink, const char *text, size_t length);

// ---- launching ----

// What an address is counted from: one of the launch's arguments by its number, or
enum { BASE_NONE = -3, BASE_ZEROED, BASE_WORKSPACE };

typedef struct LaunchArg {
    bool is_tensor;
    int base;   // of the address; callers need not set it
    uint64_t address;
    int rank;
    int64_t shape[LAYOUT_MAX_RANK], strides[LAYOUT_MAX_RANK];
    Scalar scalar;   // of type i64, bool or f64: converted to the parameter's
} LaunchArg;

void launch_arg_dense(LaunchArg *arg);   // sets row-major strides

typedef struct LaunchDevice {
    int multiprocessors;   // what sms() answers
    int64_t max_grid;
} LaunchDevice;

// All that a tensor map is made from. (CUDA driver API, cuTensorMapEncodeTiled.)
typedef struct MapRequest {
    Type type;
    int rank, swizzle;
    bool tf32;                         // f32, which loads round
    int box[TENSOR_MAP_RANK];          // elements; as extent and stride the innermost dim first
    int64_t extent[TENSOR_MAP_RANK];   // elements
    int64_t stride[TENSOR_MAP_RANK];   // bytes; [0] is an element's size
    uint64_t address;
    int base;   // of the address; no part of the map
} MapRequest;

// One thing for the device to do, in order.
typedef struct Action {
    const PlanVariant *variant;   // a kernel; NULL: a fill
    int64_t grid;
    int param_count;
    uint64_t *params;   // [param_count] bits of each parameter: a pointer, a scalar, a dim; 0 at a tensor map's place
    int *bases;         // [param_count] of those that are addresses, else BASE_NONE
    MapRequest *maps;   // as many as the variant's
    uint64_t address;   // fill: count elements of `width` bytes become `pattern`
    int base;           // of that address
    int64_t count;
    int width;
    uint64_t pattern;
} Action;

typedef struct Launch {
    VEC(Action) actions;
    int64_t workspace;   // bytes of scratch there
    int64_t zeroed;      // bytes of scratch that kernels leave zero, wherever it lies
} Launch;

// Where scratch lies; both addresses are 256-byte aligned.
typedef struct LaunchMemory {
    uint64_t workspace;
    uint64_t zeroed;   // that which kernels leave zero, and is zero; 0: it is in the workspace too, and filled first
} LaunchMemory;

// Chooses variants, checks contracts and computes what to launch. To learn the sizes, resolve with a memory of 0 first.
// False: reported to the sink.
bool plan_dispatch(Arena *arena, DiagSink *sink, const Plan *plan, const PlanEntry *entry, int count,
                   const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory, Launch *out);

// ---- host expressions ----

typedef struct HostName {
    const char *name;
    Scalar value;
} HostName;

// Values of expressions that were evaluated with these names, by the numbers of a plan's entry.
typedef struct HostValues {
    bool *known;
    Scalar *values;
} HostValues;

typedef struct HostScope {
    VEC(HostName) names;
    int multiprocessors;
    HostValues *cache;   // only expressions of a plan are evaluated, of one entry; NULL: any
} HostScope;

// The value of an expression. False with *why (in `arena`) when it has none: a division by zero, an unknown name.
bool host_eval(Arena *arena, const HostScope *scope, const Expr *expr, Scalar *value, const char **why);
