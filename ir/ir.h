// The IR: one structured program representation for every stage, whose text is the `.tile` language.
//
// A module is kernels, programs, references and tests. A body is a tree of statements over scalars (Var) and buffers
// (Buf). Two stages share it: the tile stage (tile ops on whole buffers) and the thread stage (inside `thread`: loads,
// stores, instructions). There is no SSA: `local` arrays hold per-thread values, codegen builds the phis.
//
// In: calls of the frontend and of passes that build and change a module. Out: the module, its text, answers about it.
//
//     types.def, ops.def, attrs.def, via.def    scalar types; operations and their effects; attributes; mechanisms
//     ir.h        the data structures (this file: the map): types.c, ops.c, attrs.c, module.c, roles.c, tensormap.c,
//                 im2col.c       schedule.h  the tile scheduler of a grid: schedule.c
//     build.h     constructors that fold constants: build.c, build_stmt.c, index.c
//     query.h     loops over statements: query.c       match.h     operations with named operands: match.c
//     rewrite.h   visit, substitute, clone, map: rewrite.c; uses.c: what code reads and writes
//     facts.h     ranges, multiples, proofs from assume and when: facts.c, carried.c, ranges.c, simplify.c, linear.c
//     print.h     to text: print.c, print_expr.c       verify.h    the rules: verify.c, verify_*.c
//
// Ownership: everything lives in the module's arena. Expressions are immutable and may be shared between statements;
// statements are mutable and belong to one block. A Var or Buf is one object: identity is the pointer, `name` is for
// people (the printer makes names unique within a function, print.h).
#pragma once
#include "layout/layout.h"
#include "support/arena.h"
#include "support/diag.h"
#include "support/fail.h"
#include "support/vec.h"
#include "target/target.h"
#include <stdbool.h>
#include <stdint.h>

// ---- scalar types ----
typedef enum {
#define TYPE(NAME, text, bits, kind, description) TYPE_##NAME,
#include "ir/types.def"
#undef TYPE
    TYPE_COUNT,
    TYPE_NONE = -1   // no value; also a literal whose type use decides, inside the frontend only
} Type;

typedef enum { KIND_BOOL, KIND_INT, KIND_UINT, KIND_FLOAT, KIND_OPAQUE } TypeKind;

const char *type_text(Type type);
const char *type_description(Type type);   // "bfloat16: the upper half of an f32"
bool type_can_be_added(Type type);         // by TMA (PTX ISA, "cp.reduce.async.bulk.tensor")
int type_bits(Type type);                  // in memory; bool has 8
int type_bytes(Type type);                 // of one element, at least 1
TypeKind type_kind(Type type);
Type type_named(const char *text);   // TYPE_NONE when unknown
static inline bool type_is_float(Type t) {
    return t != TYPE_NONE && type_kind(t) == KIND_FLOAT;
}
static inline bool type_is_int(Type t) {
    return t != TYPE_NONE && (type_kind(t) == KIND_INT || type_kind(t) == KIND_UINT);
}
Type type_compute(Type type);   // floats below f32 compute in f32; all else in itself

// ---- forward ----
typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Var Var;
enum { MOST_LOCAL_ELEMENTS = 1 << 16 };   // of a local array: far more than a thread has registers (T0803)

typedef struct Buf Buf;
typedef struct Region Region;
typedef struct Attr Attr;

typedef struct Block {
    Stmt **items;
    int count, capacity;
} Block;   // a VEC(Stmt *) with a name

typedef VEC(Expr *) ExprVec;

// ---- attributes ----
typedef enum {
#define ATTR(NAME, text, pattern, where, meaning) ATTR_##NAME,
#include "ir/attrs.def"
#undef ATTR
    ATTR_COUNT
} AttrId;

typedef struct AttrArg {
    int64_t integer;
    const char *text;       // of strings and names
    const Layout *layout;   // of layouts
    Buf *view;              // of tensors: the im2col view of the one that `text` names; NULL: the tensor itself
} AttrArg;

enum { ATTR_MAX_ARGS = 4 };
struct Attr {
    AttrId id;
    int count;
    AttrArg args[ATTR_MAX_ARGS];
    Attr *next;
};

const char *attr_name(AttrId id);
const char *attr_pattern(AttrId id);
bool attr_takes(AttrId id, int count);   // so many arguments
const char *attr_where(AttrId id);
const char *attr_meaning(AttrId id);                 // a sentence for people
AttrId attr_named(const char *text);                 // ATTR_COUNT when unknown
const Attr *attr_get(const Attr *list, AttrId id);   // NULL when absent
int64_t attr_int(const Attr *list, AttrId id, int64_t otherwise);
const char *attr_text(const Attr *list, AttrId id);                       // first argument's text, NULL when absent
void attr_set_int(Arena *arena, Attr **list, AttrId id, int64_t value);   // replaces
void attr_set_ints(Arena *arena, Attr **list, AttrId id, int count, const int64_t *values);
Attr *attr_add(Arena *arena, Attr **list, AttrId id, int count);   // behind others of that name; to fill
void attr_set_text(Arena *arena, Attr **list, AttrId id, const char *text);
const Layout *attr_layout(const Attr *list, AttrId id);   // NULL when absent
void attr_set_layout(Arena *arena, Attr **list, AttrId id, const Layout *layout);
void attr_remove(Attr **list, AttrId id);

// ---- mechanisms: the values of @via ----
typedef enum {
    VIA_NONE,   // none chosen yet
#define VIA(NAME, text, what, meaning) VIA_##NAME,
#include "ir/via.def"
#undef VIA
    VIA_COUNT
} Via;

const char *via_text(Via via);
Via via_named(const char *text);   // VIA_NONE when unknown
Via via_of(const Stmt *stmt);
static inline bool via_is(const Stmt *stmt, Via via) {
    return via_of(stmt) == via;
}
// A store of a fragment that shared memory stages, in boxes.
static inline bool stores_staged(const Stmt *stmt) {
    return via_is(stmt, VIA_TMA_STORE) || via_is(stmt, VIA_VECTOR_STORE);
}
void via_set(Arena *arena, Stmt *stmt, Via via);   // VIA_NONE: removes it

// ---- scalars ----
typedef enum {
    VAR_DIM,       // a dynamic tensor dimension or stride: an implicit i64 parameter, bound by the arguments
    VAR_PARAM,     // a scalar parameter
    VAR_LET,       // bound once
    VAR_MUTABLE,   // `var`
    VAR_ITER,      // a loop's, grid's or thread region's index
} VarKind;

struct Var {
    const char *name;
    VarKind kind;
    Type type;
    Span loc;
};

// ---- buffers ----
typedef enum { SCOPE_GLOBAL = 1, SCOPE_SHARED = 2, SCOPE_FRAGMENT = 4, SCOPE_LOCAL = 8 } Scope;
typedef enum { MODE_IN, MODE_OUT, MODE_INOUT } Mode;

struct Buf {
    const char *name;
    Scope scope;
    Type type;   // element type; width in bits is type_bits(type)
    int rank;
    Expr **shape;                // [rank]; constants but for global tensors and reference/test locals
    Expr **strides;              // [rank] in elements, global tensors only; NULL: dense row-major
    Mode mode;                   // global parameters
    bool is_param, is_scratch;   // a parameter; a program's workspace
    bool leading;                // of a parameter: dim 0 is all leading dims of the argument as one, none is 1
    int moved;      // of a parameter: dim moved - 1 of the argument is the last one here (moved_dim); 0: none
    bool lowered;   // shared: shape is the physical shape already (after lower-tile-op); layout stays for the record
    const Layout
        *layout;      // shared: coordinates -> physical; fragment: (thread, value) -> coordinates; NULL: not yet chosen
    bool given;       // the source gives the layout (not in the text)
    int stage_dims;   // leading dims that the layout passes through (slots)
    Buf *alias_of;    // shares that buffer's storage
    const struct Im2col *im2col;   // global: a view of the tensor alias_of; NULL: none
    const Buf *made_of;            // the compiler made it for elements of that one; NULL: the source declares it
    Buf *channel;                  // shared: a tile of that channel, whose slots are the first dim; NULL: of none
    int64_t offset;                // shared: byte offset in the CTA's shared memory; -1: not allocated
    int align;                     // bytes; 0: natural
    Attr *attrs;
    Span loc;
};

// A view of a tensor [N, (D, H,) W, C] for convolutions (im2col.c): windows slide over the dims between N and C.
enum { MOST_WINDOWS = 3 };
typedef struct Window {   // of one dim: tap t at position p reads index p * stride + t * dilation - padding
    Expr *positions;      // of dims, scalars and constants: known at launch
    int64_t taps, stride, padding, dilation;
} Window;
typedef struct Im2col {
    int count;                    // the tensor has two dims more
    int dims[MOST_WINDOWS + 2];   // of the tensor, for the rows, each window and the channels (Buf.moved)
    Window windows[MOST_WINDOWS];
} Im2col;

// ---- expressions ----
typedef enum {
    EXPR_INT,
    EXPR_FLOAT,
    EXPR_VAR,
    EXPR_LOAD,
    EXPR_UNARY,
    EXPR_BINARY,
    EXPR_SELECT,
    EXPR_CAST,
    EXPR_BITCAST,
    EXPR_CALL
} ExprKind;
typedef enum { UNARY_NEG, UNARY_NOT, UNARY_BITNOT } UnaryOp;
typedef enum {
    BIN_ADD,
    BIN_SUB,
    BIN_MUL,
    BIN_DIV,
    BIN_MOD,
    BIN_AND,
    BIN_OR,
    BIN_XOR,
    BIN_SHL,
    BIN_SHR,
    BIN_EQ,
    BIN_NE,
    BIN_LT,
    BIN_LE,
    BIN_GT,
    BIN_GE,
    BIN_LOGICAL_AND,
    BIN_LOGICAL_OR
} BinaryOp;
// `/` and `%` truncate; on indices known non-negative they are floor too. && || and ?: evaluate lazily.

typedef enum {
#define OP(NAME, ...) OP_##NAME,
#include "ir/ops.def"
#undef OP
    OP_COUNT
} OpId;

// One operand of a call: exactly one of the fields is set.
typedef struct Arg {
    Expr *value;        // a scalar
    Region *region;     // a tile, or the place of an element
    const char *name;   // a word (`reads`, `acquire`, `m16n8k16`) or a string literal's text (is_string)
    bool is_string;
} Arg;

struct Expr {
    ExprKind kind;
    Type type;   // of the value; bool for comparisons; EXPR_INT may be of any integer type or bool
    Span loc;
    union {
        int64_t integer;   // EXPR_INT (bool: 0, 1; u64: bits)
        double real;       // EXPR_FLOAT, already rounded to its type
        Var *var;
        struct {
            Buf *buf;
            int count;
            Expr **indices;
        } load;   // global, shared, fragment or local element; i64 indices
        struct {
            UnaryOp op;
            Expr *a;
        } unary;
        struct {
            BinaryOp op;
            Expr *a, *b;
        } binary;   // operands of one type (shifts: any integer right operand)
        struct {
            Expr *condition, *yes, *no;
        } select;
        Expr *operand;   // EXPR_CAST (T(x)), EXPR_BITCAST
        struct {
            OpId op;
            int count;
            Arg *args;
        } call;   // args in the op table's order; absent optionals: all NULL
    };
};

// ---- regions: a tile of a buffer as an operand ----
typedef struct RegionDim {
    Expr *start;    // first index (i64)
    Expr *extent;   // elements that are there; NULL: a plain index, the dim is dropped. Not the constant `tile`: clips
                    // (reads 0, writes nothing beyond)
    int64_t tile;   // extent of the operand in this dim (the other side's)
} RegionDim;

struct Region {
    Buf *buf;
    int count;   // == buf->rank
    RegionDim *dims;
    bool transposed;   // `.T`: the last two kept dims exchanged
    Span loc;
};
// Operand shape of a region: its kept dims' tiles, exchanged when transposed.
int region_rank(const Region *region);
int64_t region_extent(const Region *region, int dim);
bool region_is_whole(const Region *region);        // every dim from 0, with the buffer's extent, nothing dropped
bool region_is_whole_slot(const Region *region);   // the same of the dims of one slot

// ---- statements ----
typedef enum {
    STMT_LET,   // let var = value;             STMT_VAR: var x: T = value;
    STMT_VAR,
    STMT_ASSIGN,   // x = value;
    STMT_STORE,    // buf[indices] = value;
    STMT_DECL,     // shared/fragment/local/scratch buffer
    STMT_FOR,      // for/unroll/vectorized/parallel/pipelined
    STMT_WHILE,
    STMT_IF,
    STMT_BREAK,
    STMT_BLOCK,   // { }
    STMT_GRID,
    STMT_ROLE,
    STMT_THREAD,
    STMT_CALL,     // an op for its effect (`async` with it), without result: `let x = atomic_add(...)` is LET
    STMT_LAUNCH,   // program: k(A, t);
    STMT_ASSUME,
} StmtKind;

typedef enum { LOOP_SERIAL, LOOP_UNROLL, LOOP_VECTORIZED, LOOP_PARALLEL, LOOP_PIPELINED } LoopKind;

typedef struct Iter {
    Var *var;
    Expr *begin, *end, *step;   // begin..end by step; step is a positive constant 1 by default (never NULL)
} Iter;

typedef struct Func Func;

struct Stmt {
    StmtKind kind;
    Span loc;
    Attr *attrs;
    union {
        struct {
            Var *var;
            Expr *value;
        } let;   // LET, VAR (value may be NULL), ASSIGN
        struct {
            Buf *buf;
            int count;
            Expr **indices;
            Expr *value;
        } store;
        Buf *decl;
        struct {
            LoopKind kind;
            int count;
            Iter *iters;
            Expr *stages;
            Block body;
        } loop;   // first iterator is the outermost
        struct {
            Expr *condition;
            Block body;
        } while_;
        struct {
            Expr *condition;
            Block then, otherwise;
        } if_;   // otherwise.count 0: no else
        Block block;
        struct {
            int count;
            Iter *iters;      // begin 0, step 1; first iterator runs fastest over block indices
            Expr *threads;    // constant: compute threads per tile
            int cluster[3];   // CTAs per iterator; all 1: no cluster
            Block body;
        } grid;   // the order of its tiles, and how CTAs come to them, are attributes (schedule.h)
        struct {
            const char *name;
            int64_t threads;
            int64_t regs;
            int count;     // 1: an array of roles with one text, whose index is iters[0]; 0: one role
            Iter *iters;   // begin 0, a constant end, step 1
            Block body;
        } role;   // threads and regs are each member's; regs 0: not given
        struct {
            int count;
            Iter *iters;
            Block body;
        } thread;
        struct {
            OpId op;
            int count;
            Arg *args;
            bool is_async;
        } call;
        struct {
            const char *callee;
            Func *func;
            int count;
            Arg *args;
        } launch;   // tensors as whole regions, scalars
        Expr *assume;
    };
};

// ---- functions ----
typedef enum { FUNC_KERNEL, FUNC_PROGRAM, FUNC_REFERENCE } FuncKind;
typedef enum { STAGE_TILE, STAGE_THREAD } Stage;

typedef struct Param {
    Var *var;   // a scalar parameter, or
    Buf *buf;   // a tensor
    Attr *attrs;
} Param;

// What a launch costs, for the choice among variants of one source kernel: the extents of its problem, in dims and
// scalars, and the coefficients (target/launch_cost.h).
typedef struct FuncCost {
    Expr *extents[COST_EXTENTS];
    LaunchCost terms;
} FuncCost;

struct Func {
    FuncKind kind;
    const char *name;    // variants of one kernel share it
    VEC(Param) params;   // a reference has its kernel's params as objects of its own, float tensors as f64
    VEC(Var *) dims;     // dynamic dims and strides (VAR_DIM), in order of first mention
    Expr *when;          // condition on dims, scalars, aligned(); NULL: always
    FuncCost *cost;      // NULL: not compared; it is tried in its order
    Block body;
    Attr *attrs;
    Stage stage;   // THREAD once lower-tile-op has run
    Span loc;
};

typedef struct Binding {
    const char *name;
    Expr *value;   // constant
} Binding;

typedef struct Test {
    const char *name;        // kernel or program
    VEC(Binding) bindings;   // dims, strides, scalars (what the elaboration used up is gone)
    Func *fill;              // the block that fills inputs, as a FUNC_REFERENCE with the kernel's params; NULL: none
    double tolerance;
    Span loc;
} Test;

typedef struct Module {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    VEC(Func *) funcs;        // kernels (variants adjacent, tried in order) and programs, in source order
    VEC(Func *) references;   // at most one per name
    VEC(Test *) tests;
    bool one_launch;   // what other launches take was dropped
} Module;

Module *module_new(Arena *arena, Failure *failure, DiagSink *sink);
Func *module_func(const Module *module, const char *name);   // the first of that name; NULL
// How many variants from this one on a launch compares by cost: those with a cost, to the first without @tile_variant.
// 1: it is tried in its order.
int module_compared(const Module *module, int at);
Func *module_reference(const Module *module, const char *name);
Var *func_dim(const Func *func, const char *name);   // NULL when absent
const Stmt *func_grid(const Func *kernel);           // its grid statement
int64_t grid_blocks(const Stmt *grid);               // CTAs that share a tile: @ctas, 1 without
int grid_cluster(const Stmt *grid);                  // CTAs of a cluster, 1 without
void set_cluster(Stmt *grid, int ctas);              // along the first name
int64_t grid_threads(const Stmt *grid);              // that run: those of thread regions and roles, else as declared
int64_t role_members(const Stmt *role);              // groups with its text: of an array; else 1
int64_t role_span(const Stmt *role);                 // threads of all members
// The kernel with a role of its own for each member of an array, `name0` and so on. Itself where it has no arrays.
const Func *roles_expanded(Arena *arena, const Func *kernel);

// ---- arguments, and parameters that are none: tensor maps, made at launch (tensormap.c) ----
bool param_is_hidden(const Param *param);
int func_argument_count(const Func *func);                    // what callers pass: the parameters that are not hidden
const Param *func_argument(const Func *func, int index);      // the parameter of that argument; NULL: there are fewer
const Param *func_hidden(const Func *func, const Var *map);   // the hidden parameter that is this variable; NULL

enum { TENSOR_MAP_RANK = 5 };
// The tensor, or one it is a view of, is `@independent`: no kernel before that may still run writes it.
bool tensor_is_independent(const Func *func, const Buf *tensor);
// What @tma says: the one description of a tensor map from which come the driver's request (runtime/plan), the copies'
// boxes, coordinates and bytes (lower_hopper.c), what the verifier asks of them and what the emulator executes.
typedef struct TensorMap {
    const Buf *tensor, *view;   // view: the im2col view that it maps; NULL: the tensor itself
    int rank;                   // coordinates of a box: the tensor's dims, or two of a view that is merged
    int offsets;                // an im2col map: coordinates that follow, from the first tap of each window; 0: tiled
    int box_rank, box[TENSOR_MAP_RANK];   // elements, the innermost dim first; of a view channels and rows
    int swizzle;                          // bytes
    bool tf32;                            // loads round to it
} TensorMap;
// NULL, or why TMA has no map of the view. What depends on the launch is in tensor_map_corner.
const char *tensor_map_view_problem(const Buf *view);
// The last place of a window's first tap, as TMA counts it: from the end of the dim. Its first place is `-padding`.
Expr *tensor_map_corner(Arena *arena, const Buf *view, int window);
void tensor_map_corner_range(const Buf *view, int64_t *low, int64_t *high);
// The box of a region's tile with `columns` along the last dim and `extents` of its other dims, as @tma writes it.
const char *tensor_map_box(Arena *arena, const Region *region, const int64_t *extents);
// The coordinates of a box whose element [rows, columns] of the region's tile comes first, innermost first, and for an
// im2col map the offsets; rows NULL: none. Returns how many; `loads`: with the offsets.
int tensor_map_coordinates(Arena *arena, const Region *region, int64_t columns, Expr *rows, bool loads, Expr **out);
enum { MOST_COORDINATES = TENSOR_MAP_RANK + MOST_WINDOWS };
bool tensor_map_read(const Func *func, const Param *param, TensorMap *out,
                     const char **why);               // false: *why, after its name
int64_t tensor_map_rows(const TensorMap *map);        // of the box, of box[0] elements each
int64_t tensor_map_row_bytes(const TensorMap *map);   // rows * row_bytes is what an mbarrier counts
int64_t tensor_map_pitch(const TensorMap *map);       // bytes from row to row in shared memory

// ---- roles (roles.c) ----
// Registers of a thread at the start of a CTA, before roles reallocate them: an equal share, in setmaxnreg's unit of 8.
// With nine warps one partition of the multiprocessor runs three.
int64_t registers_at_launch(const Target *target, int64_t threads);
// The number of roles from this one on that together fill whole warpgroups and have equal register counts; 0: none. The
// first role must begin a warpgroup.
int roles_of_warpgroups(const Target *target, const Block *block, int at);
// A CTA keeps its initial registers: a role that takes more than the others release waits forever. Only whole
// warpgroups change their count. NULL: the roles can reallocate; else why not.
const char *roles_cannot_trade(Arena *arena, const Target *target, const Block *block, int64_t threads);

// ---- the op table ----
enum { STAGE_BIT_TILE = 1, STAGE_BIT_THREAD = 2, STAGE_BIT_HOST = 4, STAGE_BIT_REF = 8 };
typedef enum { ACCESS_VALUE, ACCESS_READ, ACCESS_WRITE, ACCESS_UPDATE, ACCESS_NAME } Access;
typedef enum { PROXY_GENERIC, PROXY_ASYNC } Proxy;
typedef enum {
    RESULT_NONE,
    RESULT_FIRST,
    RESULT_PROMOTE,
    RESULT_FLOATING,
    RESULT_ELEMENT,
    RESULT_BOOL,
    RESULT_I32,
    RESULT_I64,
    RESULT_U32,
    RESULT_SLOT
} OpResult;   // FLOATING: as FIRST, integers become f32
typedef enum { BY_EACH, BY_ELECTED, BY_WARP, BY_WARPGROUP, BY_ROLE, BY_BLOCK, BY_CLUSTER } Participants;
typedef enum { DONE_NOW, DONE_CP_GROUP, DONE_BULK_GROUP, DONE_MBARRIER, DONE_WGMMA_GROUP } Completion;
enum {   // (ops.def)
    OPERAND_UNIFORM = 1,
    OPERAND_OPTIONAL = 2,
    OPERAND_NAMED = 4,
    OPERAND_CONST = 8,
    OPERAND_VARIADIC = 16,
    OPERAND_WHOLE = 32,
    OPERAND_TRUTH = 64,
    OPERAND_WORD = 128
};

typedef struct Operand {
    const char *name;
    Access access;
    int scopes;   // Scope bits
    Proxy proxy;
    int flags;
} Operand;

enum { MOST_CLUSTER = 16 };   // CTAs of a cluster, on any target
enum { OP_MAX_OPERANDS = 14 };
enum {   // sets of ops that are handled alike (ops.def)
    OP_CLASS_PURE = 1,
    OP_CLASS_TILE = 2,
    OP_CLASS_REDUCTION = 4,
    OP_CLASS_SCAN = 8,
    OP_CLASS_ELEMENT = 16,
    OP_CLASS_ATOMIC = 32,
    OP_CLASS_COMMUTES = 64,
    OP_CLASS_INTEGER = 128,
    OP_CLASS_TENSOR_MAP = 256,
    OP_CLASS_MATH = 512
};
typedef struct OpInfo {
    OpId id;
    const char *text;
    int stages;
    OpResult result;
    Participants participants;
    Completion completion;
    Feature feature;
    int classes;   // OP_CLASS_ bits
    const char *summary;
    int operand_count;
    Operand operands[OP_MAX_OPERANDS];
} OpInfo;

extern const OpInfo op_rows[OP_COUNT + 1];   // the last row is OP_COUNT's: no operation
static inline const OpInfo *op_info(OpId op) {
    return &op_rows[op];
}
// The row of the i-th operand; a variadic one is the last and stands for all that follow. NULL: no such operand.
const Operand *op_operand(OpId op, int i);
OpId op_named(const char *text);   // OP_COUNT when unknown
// It writes memory, reads what others write, or meets other threads: not to be evaluated twice.
bool op_must_not_repeat(OpId op);
static inline bool op_is(OpId op, int classes) {   // in one of these classes; false for OP_COUNT, no operation
    return (op_info(op)->classes & classes) != 0;
}
// reduce_any and reduce_all take bool; sums, products, other reductions and scans take numbers; nothing moves barriers.
bool op_takes_element(OpId op, Type type);
static inline bool op_is_pure(OpId op) {
    return op_is(op, OP_CLASS_PURE);
}
