// Constructors. They fold constants and drop neutral elements (x + 0, x * 1, 0 / x, ...), so that what passes build
// reads as a person would write it; they never reorder. Index arithmetic is i64. Integer folding wraps as the type
// does.
#pragma once
#include "ir/ir.h"

// Every constructor takes its memory from `arena`.
Expr *e_int(Arena *arena, int64_t value);                 // i64
Expr *e_int_of(Arena *arena, Type type, int64_t value);   // bool and integers: wraps to the type
Expr *e_float(Arena *arena, Type type, double value);     // rounds to the type
Expr *e_zero(Arena *arena, Type type);
Expr *e_bool(Arena *arena, bool value);
Expr *e_var(Arena *arena, Var *var);
Expr *e_load(Arena *arena, Buf *buf, int count, Expr *const *indices);
Expr *e_load1(Arena *arena, Buf *buf, Expr *index);
Expr *e_load_at(Arena *arena, const Region *element);
Expr *e_unary(Arena *arena, UnaryOp op, Expr *a);
Expr *e_binary(Arena *arena, BinaryOp op, Expr *a, Expr *b);   // operand types must agree
Expr *e_select(Arena *arena, Expr *condition, Expr *yes, Expr *no);
Expr *e_cast(Arena *arena, Type type, Expr *a);   // nothing when a has that type
Expr *e_bitcast(Arena *arena, Type type, Expr *a);
Expr *e_call(Arena *arena, OpId op, int count, const Arg *args);   // result type by the op table
#define ARG_COUNT(...) ((int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)))
// e_call(arena, op, Arg...): at least one operand.
#define E_CALL(arena, op, ...) e_call(arena, op, ARG_COUNT(__VA_ARGS__), (Arg[]){__VA_ARGS__})
Expr *e_call1(Arena *arena, OpId op, Expr *a);
Expr *e_call2(Arena *arena, OpId op, Expr *a, Expr *b);
Expr *e_add(Arena *arena, Expr *a, Expr *b);
Expr *e_sub(Arena *arena, Expr *a, Expr *b);
Expr *e_mul(Arena *arena, Expr *a, Expr *b);
Expr *e_div(Arena *arena, Expr *a, Expr *b);
Expr *e_mod(Arena *arena, Expr *a, Expr *b);
Expr *e_xor(Arena *arena, Expr *a, Expr *b);
Expr *e_lt(Arena *arena, Expr *a, Expr *b);
Expr *e_and(Arena *arena, Expr *a, Expr *b);   // logical; true is neutral
Expr *e_min(Arena *arena, Expr *a, Expr *b);
Expr *e_max(Arena *arena, Expr *a, Expr *b);
Expr *e_eq(Arena *arena, Expr *a, Expr *b);
Expr *e_cluster_extent(Arena *arena, int name);   // of a grid with `@cluster`
Expr *e_cluster_ctas(Arena *arena);               // all of such a cluster
Expr *e_sms(Arena *arena);                        // the number of multiprocessors, known at launch
Expr *e_ge(Arena *arena, Expr *a, Expr *b);
Expr *e_both(Arena *arena, Expr *a, Expr *b);   // a && b, where NULL is true
// With a constant on the right: a + n, a * n, a / n, a % n.
Expr *e_plus(Arena *arena, Expr *a, int64_t n);
Expr *e_times(Arena *arena, Expr *a, int64_t n);
Expr *e_over(Arena *arena, Expr *a, int64_t n);
Expr *e_rem(Arena *arena, Expr *a, int64_t n);

bool expr_is_int(const Expr *e, int64_t value);   // the integer constant `value`
bool expr_is_zero(const Expr *e);                 // 0, or 0.0 but not -0.0, through casts
bool expr_const(const Expr *e, int64_t *value);   // an integer constant
bool expr_equal(const Expr *a, const Expr *b);    // structurally, without places

Var *var_new(Arena *arena, const char *name, VarKind kind, Type type, Span loc);
Buf *buf_new(Arena *arena, const char *name, Scope scope, Type type, int rank, Expr *const *shape, Span loc);
Buf *buf_new_const(Arena *arena, const char *name, Scope scope, Type type, int rank, const int64_t *shape, Span loc);
// A view [rows, taps.., channels] of a tensor with a window for each dim between the first and the last (im2col.c).
Buf *im2col_new(Arena *arena, Buf *tensor, int count, const Window *windows, Span loc);
Expr **im2col_indices(Arena *arena, const Buf *view, Expr *const *at);   // of the tensor's element
// The tensor's indices, but for the channels, of the first tap of the windows at that row.
void im2col_first(Arena *arena, const Buf *view, Expr *row, Expr **out);
const char *im2col_problem(const Buf *view);               // NULL, or why its windows are none
const char *im2col_region_problem(const Region *region);   // NULL, or why it is not rows of channels at one tap
bool im2col_equal(const Buf *a, const Buf *b);             // views of one tensor with equal windows; or both NULL
bool im2col_is_merged(const Buf *view);        // its rows are those of the tensor with all leading dims merged
Buf *buf_viewed(const Buf *buf);               // the tensor of a view; else the buffer itself
const char *buf_source_name(const Buf *buf);   // the name that diagnostics give: one of the source
const Buf *buf_root(const Buf *buf);           // that owns the storage: follows alias_of
bool buf_is_constant(const Buf *buf);          // a tensor that nothing writes while the kernel runs
int64_t buf_extent(const Buf *buf, int dim);   // constant extent; -1 when dynamic
int64_t buf_elements(const Buf *buf);          // of constant extents
int buf_slot_rank(const Buf *buf);             // dims of one slot: of a tile without those of its slots
int64_t buf_slots(const Buf *buf);             // of a multi-buffered tile; else 1
int64_t buf_slot_bytes(const Buf *buf);        // bytes of one slot's elements, whose extents are constant
int64_t buf_slot_space(const Buf *buf);        // of the memory that a slot takes: of its layout's image, if it has one
int64_t buf_space(const Buf *buf);             // ... that all slots take
int64_t buf_outermost(const Buf *buf);         // extent of the first dim of that memory
// ... that makes the memory a multiple of `align` bytes: of buffers that lie behind each other, of members of an array.
int64_t buf_outermost_aligned(const Buf *buf, int64_t align);

// A tile of 0 stands for the extent.
Region *region_new(Arena *arena, Buf *buf, const RegionDim *dims, bool transposed, Span loc);
Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes);   // `aligned(buf, bytes)`
Region *region_whole(Arena *arena, Buf *buf);
// Of a copy that transposes: `.T` is said of what is in memory if the other side is a fragment, else of the source.
void place_transposition(Region *src, Region *dst);
int64_t region_bytes(const Region *region);                                        // of the operand
Region *region_element(Arena *arena, Buf *buf, int count, Expr *const *indices);   // all dims plain indices
Arg arg_value(Expr *value);
Arg arg_region(Region *region);
Arg arg_name(const char *name);
Arg arg_int(Arena *arena, int64_t value);
Arg arg_element(Arena *arena, Buf *buf, Expr *index);   // of a buffer of rank 1

Stmt *stmt_new(Arena *arena, StmtKind kind, Span loc);
Stmt *s_let(Arena *arena, Var *var, Expr *value);
Stmt *s_var(Arena *arena, Var *var, Expr *value);
Stmt *s_assign(Arena *arena, Var *var, Expr *value);
Stmt *s_store(Arena *arena, Buf *buf, int count, Expr *const *indices, Expr *value);
Stmt *s_store1(Arena *arena, Buf *buf, Expr *index, Expr *value);
Stmt *s_store_at(Arena *arena, const Region *element, Expr *value);
Stmt *s_decl(Arena *arena, Buf *buf);
Stmt *s_for(Arena *arena, LoopKind kind, Var *var, Expr *begin, Expr *end);   // one iterator, step 1, empty body
Stmt *s_if(Arena *arena, Expr *condition);
Stmt *s_if_only(Arena *arena, Expr *condition, Stmt *stmt);   // around one statement, at its place
Stmt *s_assume(Arena *arena, Expr *condition, Span loc);
Stmt *s_block(Arena *arena);
Stmt *s_call(Arena *arena, OpId op, int count, const Arg *args);
void iter_insert(Arena *arena, Iter **iters, int *count, int at, Iter iter);
Iter iter_new(Arena *arena, Var *var, Expr *end);                    // 0 .. end by 1
Expr *grid_tiles(Arena *arena, const Stmt *grid);                    // their number: the product of its extents
Stmt *s_copy(Arena *arena, Region *src, Region *dst, Span loc);      // copy(src, dst)
void call_set_arg(Arena *arena, Stmt *call, int operand, Arg arg);   // also one behind those that it has
void block_push(Arena *arena, Block *block, Stmt *stmt);
void block_insert(Arena *arena, Block *block, int at, Stmt *stmt);
void block_remove(Block *block, int at);
void block_append(Arena *arena, Block *to, const Block *from);

// New statements at a block's end.
Stmt *block_call(Arena *arena, Block *block, Span loc, OpId op, int count, const Arg *args);
// block_call(arena, block, loc, op, Arg...): at least one operand.
#define BLOCK_CALL(arena, block, loc, op, ...)                                                                         \
    block_call(arena, block, loc, op, ARG_COUNT(__VA_ARGS__), (Arg[]){__VA_ARGS__})
Expr *block_let(Arena *arena, Block *block, const char *name, Expr *value, Span loc);    // the new variable
Expr *block_name(Arena *arena, Block *block, const char *name, Expr *value, Span loc);   // a name or constant: itself
Stmt *block_barrier(Arena *arena, Block *block, Span loc);   // of all threads that execute it
// Behind mbarrier_init: all threads, of the cluster if `cluster`, and asynchronous units see the mbarriers set up.
void block_publish_mbarriers(Arena *arena, Block *block, bool cluster, Span loc);
Buf *block_local(Arena *arena, Block *block, const char *name, Type type, int64_t count, Span loc);   // a local array
void block_store1(Arena *arena, Block *block, Buf *buf, Expr *index, Expr *value);
Block *block_nested(Arena *arena, Block *block, Span loc);      // the body of a new { }
Block *block_if(Arena *arena, Block *block, Expr *condition);   // its body; NULL: the block itself

// Scalar arithmetic in the exact semantics of the language (used by folding and by the emulator):
double float_round(Type type, double value);                // to nearest even; e4m3/e5m2 saturate; f64 unchanged
double float_from_int(Type to, Type from, int64_t value);   // rounds once, to nearest even
int64_t gcd64(int64_t a, int64_t b);                        // of absolute values; gcd(0, x) = |x|
int64_t int_wrap(Type type, int64_t value);
// a op b for operands of `type`, before wrapping to the type; false where it must not fold (a division by 0).
bool int_binary(BinaryOp op, Type type, int64_t a, int64_t b, int64_t *out);
