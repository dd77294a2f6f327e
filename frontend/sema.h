// Elaboration: from the syntax tree to the IR. What its files share; not for other folders.
//
//     names.c     scopes, file consts, -D             types.c     values, promotion, conversion
//     fold.c      arithmetic of untyped constants     expr.c      expressions
//     calls.c     calls of operations                 shapes.c    regions, extents, shapes of tile ops
//     views.c     views of buffers                    view_calls.c, view_moves.c    their names; copies of them
//     casts.c     elements of another type, other CTAs' tiles
//     im2col.c    views for convolutions              index_map.c  layouts of tensor parameters
//     shared_map.c  shared buffers in the coordinates of views that products read
//     stmt.c      statements                          roles.c     roles
//     decl.c      buffers, attributes, places
//     inline.c    fn and macro                        params.c    parameters, dims, compile-time names
//     cost.c      cost clauses
//     func.c      kernels, programs, references       launch.c    calls of kernels in programs
//     variants.c  values of compile-time names        tests.c     tests and their choices
//     elaborate.c the entry points
//
// A literal has no type until it is used, so expressions are Values: an untyped number, or a typed Expr. After an error
// the value is poison, which nothing complains about again.
#pragma once
#include "frontend/foreign.h"
#include "frontend/syntax.h"
#include "ir/build.h"
#include "ir/facts.h"

typedef __int128 Wide;   // room for every i64 and u64, and for noticing what is neither

typedef enum { VALUE_POISON, VALUE_INT, VALUE_FLOAT, VALUE_EXPR } ValueKind;

typedef struct SemaValue {
    ValueKind kind;
    Wide integer;              // VALUE_INT: within INT64_MIN .. UINT64_MAX
    double real;               // VALUE_FLOAT
    Expr *expr;                // VALUE_EXPR
    const struct Arms *arms;   // VALUE_EXPR: a conditional of literals, which has no type yet either; NULL: it is none
    Span span;
} SemaValue;

typedef struct Arms {
    Expr *condition;
    SemaValue yes, no;
} Arms;

typedef enum {
    SYMBOL_VALUE,   // const, tunable, compile-time name, a kernel's `let`
    SYMBOL_CONST,   // a file const that nothing has used yet: node
    SYMBOL_TYPE,    // a compile-time name that stands for a type
    SYMBOL_VAR,
    SYMBOL_BUF,
    SYMBOL_VIEW,
} SymbolKind;

// A view of a buffer (views.c): the element at each of its coordinates.
typedef struct View {
    Buf *buf;
    int rank;
    bool whole;                     // the buffer itself
    bool declared;                  // by its parameter, whose argument is the buffer
    bool mapped;                    // that has a layout (index_map.c)
    Var *at[LAYOUT_MAX_RANK];       // its coordinates
    Expr *shape[LAYOUT_MAX_RANK];   // with compile-time values put in
    Expr *index[LAYOUT_MAX_RANK];   // of the buffer, over `at`
    Expr *limit[LAYOUT_MAX_RANK];   // from which on a coordinate is outside, where the buffer does not say it; or NULL
    bool clips[LAYOUT_MAX_RANK];    // the extent was written as one that clips
    Expr *inside;                   // over `at`: the buffer's element is the view's; NULL: always
    Expr *cta;                      // the rank of the CTA of the cluster whose buffer it is; NULL: the own one
    bool is_cast;                   // the buffer's elements have another type (casts.c) than
    Type cast;
    Expr *piece;   // over `at`: which of the narrow parts of a wide element it is; NULL: none
} View;

// A slice of a dim: `count` elements from `start` on, each `step` behind the one before. Count NULL: an index.
typedef struct ViewSlice {
    Expr *start, *count;
    int64_t step;
    bool clips;
} ViewSlice;

// An operand of a tile operation: a region, or where no region can say it only a view.
typedef struct TileOperand {
    Region *region;   // NULL: only the view
    const View *view;
    int64_t tiles[LAYOUT_MAX_RANK];
    const char *why;   // it is no region
} TileOperand;

// The place of an element.
typedef struct Place {
    Buf *buf;
    int count;
    Expr **indices;
    Expr *inside;   // else it reads 0, and nothing is written; NULL: always
    Expr *cta;      // as of a View
    bool is_cast;
    Type cast;
    Expr *piece;
} Place;

// A shared buffer that lies in other coordinates than those of its declaration (shared_map.c).
typedef struct SharedMap {
    const Node *declaration;
    int64_t map_shape[LAYOUT_MAX_RANK];   // of the declaration
    const Layout *map;                    // from its coordinates
} SharedMap;

typedef struct SharedMaps {   // of the kernel that is being made
    VEC(SharedMap) all;
    VEC(SharedMap) asked;   // by products, for the next time
    int others;             // errors of the time before that are not theirs
    // Refused: they exclude something else. Silent: there are other errors, which name buffers as they are declared.
    enum { MAPS_TAKEN, MAPS_REFUSED, MAPS_SILENT } state;
    Map *declarations;   // buffer -> Node, of those that may have a map
} SharedMaps;

typedef struct Symbol {
    SymbolKind kind;
    const char *name;
    Span span;
    SemaValue value;
    Type type;
    Var *var;
    Buf *buf;
    const View *view;
    const Node *node;
    bool busy;   // a const whose value is being computed
} Symbol;

typedef struct NameScope {
    struct NameScope *outer;
    StrMap *symbols;
    StrMap *unknown;   // names that were reported as unknown; NULL: none
    Span explained;    // by the last note about another language
} NameScope;

typedef struct Making {   // the functions that are being made: one, and those that call it
    struct Making *outer;
    const Node *node;
} Making;

// A compile-time name's value while one variant is made.
typedef struct Choice {
    const char *name;
    SemaValue value;   // poison when it is a type
    Type type;         // TYPE_NONE when it is a number
    bool is_param;     // no tensor dim of its own: a scalar parameter
    Var *var;          // the dim or parameter, once made
} Choice;
typedef VEC(Choice) ChoiceVec;

typedef struct Inlining {   // the fn and macro calls around what is being elaborated
    struct Inlining *outer;
    const Node *node;
    int depth;
} Inlining;

typedef struct Made {   // a function of the module to be
    Func *func;
    int item;      // index of the declaration, the first of its name: functions are sorted by it
    int variant;   // index of its own: those of one name are
    const Node *node;
    ChoiceVec choices;
    bool called;   // specialised for a program's call
    bool broken;   // with errors: its reference and tests say nothing new
} Made;

typedef enum { IN_FILE, IN_KERNEL, IN_BLOCK, IN_PROGRAM, IN_REFERENCE, IN_FILL } CodeContext;

typedef struct Sema {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    Syntax *syntax;
    const ElaborateOptions *options;
    Module *module;
    bool verbatim;   // re-reading printed IR: nothing folds, nothing is added, the same program comes out

    NameScope *file, *scope;
    StrMap *defines;          // name -> Define
    StrMap *wrong_defines;    // those that were reported
    ChoiceVec choices;        // of the variant being made
    const int *picks;         // which candidate each tunable of the kernel takes, in order of the text
    int picked, pick_count;   // tunables seen so far, and all
    Func *func;
    Block *block;   // where statements go
    CodeContext context;
    int constant;    // > 0: inside an expression that must be constant
    int loops;       // loops around, for break
    Map *naturals;   // iterators that are never negative
    Facts *facts;    // of facts_of: its conditions, iterators and lets so far
    const Func *facts_of;
    Map *tiles;         // a channel's buffer -> ChannelTiles
    Map *held;          // a handle's variable -> the channel's buffer
    SharedMaps *maps;   // NULL: of no kernel
    int skipped;        // > 0: inside an operand that is evaluated under a condition, or a condition of a kernel
    int copied;         // > 0: inside an expression that passes may copy, so that what happens once is bound before it
    bool in_parallel, in_thread, in_pipelined;
    bool placed;   // `place` was given by @loc: all that is inside takes it
    Span place;
    Inlining *inlining;
    Making *making;
    int expansions;    // fn and macro calls so far
    int depth;         // of expressions inside each other, with those of consts and fn that they name
    int nested;        // statements and bodies inside each other, with those of what is called
    int grids;         // in this kernel
    bool *item_done;   // per declaration: its functions are made
    VEC(Made) made;
} Sema;

// ---- roles.c ----
void role(Sema *s, const Node *node);   // a role, or an array of them

// ---- names.c ----
void scope_open(Sema *s, NameScope *scope);
void scope_close(Sema *s);
Symbol *declare(Sema *s, SymbolKind kind, const char *name, Span span);   // reports a name given twice
void declare_value(Sema *s, const char *name, SemaValue value, Span span);
void reconsider_consts(Sema *s);   // those that were wrong, where what was said of them has been dropped
void declare_type(Sema *s, const char *name, Type type, Span span);
Var *declare_var(Sema *s, const char *name, VarKind kind, Type type, Span span);
void declare_buf(Sema *s, Buf *buf, Span span);
void declare_view(Sema *s, const char *name, const View *view, Span span);
Symbol *find(Sema *s, const char *name);   // NULL when unknown
Symbol *find_or_report(Sema *s, const Node *node);
void forget_unknown_names(Sema *s);   // of the function, where its diagnostics are taken back: they are reported again
Type find_type(Sema *s, const Node *name);   // reports; TYPE_NONE then
// The same, but a new name with a capital is from now on that of `type`; one that looks like a mistyped type is reported.
Type bind_type(Sema *s, const Node *name, Type type);
Type type_by_name(Sema *s, const char *name);   // TYPE_NONE when it is no type
void unknown_function(Sema *s, const Node *call);
void declare_file(Sema *s);   // file consts and defines
const Define *define_of(Sema *s, const char *name);
const Define *define_of_own(Sema *s, const char *kernel, const char *name);     // gemm.BM, else BM
SemaValue define_value(Sema *s, const Define *define, Span span, Type *type);   // a number, or *type

// What the text at a place means in another language, as note and fix of a diagnostic. What that explains is not reported again.
bool note_foreign(Sema *s, Diag *d, ForeignKind kind, Span at);
bool is_explained(const Sema *s, Span at);
Span end_of(Span span);   // its last byte: of `x.shape`, the place of the member

// ---- types.c ----
SemaValue value_int(Wide value, Span span);
SemaValue value_float(double value, Span span);
SemaValue value_expr(Sema *s, Expr *expr, Span span);
SemaValue value_poison(Span span);
bool is_zero_divisor(const Sema *s, const Expr *e);   // a literal or const: T0222

static inline bool is_poison(SemaValue v) {
    return v.kind == VALUE_POISON;
}
bool is_untyped(SemaValue v);
bool value_is_const(SemaValue v);                 // a number, typed or not
Type value_type(Sema *s, SemaValue v);            // the type it has, or takes where no other is needed
Expr *settle(Sema *s, SemaValue v);               // with that type
Expr *to_type(Sema *s, SemaValue v, Type type);   // as a store converts
Expr *to_index(Sema *s, SemaValue v);             // i64
Expr *to_condition(Sema *s, SemaValue v);         // bool
SemaValue binary(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span);
SemaValue unary(Sema *s, UnaryOp op, SemaValue a, bool literal, Span span);
SemaValue ternary(Sema *s, SemaValue condition, SemaValue yes, SemaValue no, Span span);
SemaValue cast(Sema *s, Type type, SemaValue a, bool literal, Span span);
bool promote(Sema *s, int count, SemaValue *values, Expr **out, const char *what, Span span);
bool promote_arms(Sema *s, SemaValue yes, SemaValue no, Expr **out,
                  Span span);                   // of `?:`: no arithmetic, f16 stays f16
const char *value_text(Sema *s, SemaValue v);   // its type, for messages
const char *operator_text(BinaryOp op);
Span place_of(const Sema *s, Span span);   // the span, or the place that @loc gives

// ---- fold.c ----
SemaValue fold_binary(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span);
bool fold_call(Sema *s, OpId op, int count, const SemaValue *args, Span span, SemaValue *out);

// ---- expr.c ----
SemaValue expression(Sema *s, const Node *node);
FuncCost *cost_clause(Sema *s, const Node *args);                  // NULL: reported
SemaValue constant(Sema *s, const Node *node, const char *what);   // reports what is none
SemaValue constant_or(Sema *s, const Node *node, const char *what, const char *remedy);
bool constant_int(Sema *s, const Node *node, const char *what, int64_t low, int64_t high, int64_t *out);
Expr *index_expression(Sema *s, const Node *node);
bool index_value(Sema *s, const Node *node, Expr **out);                           // false: reported
SemaValue value_after(Sema *s, int count, SemaValue *earlier, const Node *node);   // evaluated after the earlier ones
Expr *as_type(Sema *s, SemaValue value, Type type);
Expr *value_of_type(Sema *s, const Node *node, Type type);

// ---- calls.c ----
SemaValue call_expression(Sema *s, const Node *node);
void call_statement(Sema *s, const Node *node, bool is_async);

// ---- views.c ----
const View *view_of_buffer(Sema *s, Buf *buf);
Facts *known_facts(Sema *s);                                                       // of the function that is made
const View *view_slice(Sema *s, const View *of, const ViewSlice *slices);          // one for each dim
const View *view_permute(Sema *s, const View *of, const int *order);               // dim k is dim order[k] of the other
const View *view_transpose(Sema *s, const View *of);                               // the last two dims exchanged
const View *view_in_pieces(Sema *s, const View *of, int64_t ratio);                // its elements as so many parts each
const View *view_reshape(Sema *s, const View *of, int rank, Expr *const *shape);   // NULL: not as many elements
// The buffer's indices of the view's element at these coordinates, and the condition that it is there (NULL: always).
Place view_place(Sema *s, const View *view, Expr *const *at);   // of the element at these coordinates
Expr **view_indices(Sema *s, const View *view, Expr *const *at, Expr **inside);
// The view, of this constant shape, as a region of the buffer; NULL: *why.
Region *view_region(Sema *s, const View *view, const int64_t *tiles, Span span, const char **why);
// Of a tensor whose dims before the last it joins: a region of an im2col view; NULL: it is not so.
Region *view_joined_region(Sema *s, const View *view, const int64_t *tiles, Span span);
const View *view_simple(Sema *s, const View *view, const int64_t *tiles);   // as it is within that shape
bool view_divides(Sema *s, Expr *extent, int64_t by);                       // it is known to be a multiple
// By how much that index of the buffer grows with the coordinate; 0: not by one number.
int64_t view_step(Sema *s, const View *view, int index, int dim);
const char *view_neighbours(Sema *s, const View *view, int dim);   // for messages

// The buffer in coordinates whose places the layout says.
const View *view_through(Sema *s, Buf *buf, const Layout *map, Expr *const *shape);

// ---- view_calls.c ----
bool is_view(Sema *s, const Node *node);             // it is a view by what is written, no value or buffer
const View *view_named(Sema *s, const Node *node);   // a buffer or view; reports; NULL then
const View *view_refused(Sema *s, const Node *call, const View *of, const char *why);   // NULL
// `count` neighbours along the dim are neighbours in memory; else *why not.
bool view_is_contiguous(Sema *s, const View *view, int dim, int64_t count, const char **why);
Expr *view_bound(Sema *s, Expr *e, Span span);   // what a view keeps of it: its value here

// ---- view_moves.c ----
// copy, transpose or fill as a loop over the elements.
Buf *move_to_fragment(Sema *s, const TileOperand *src, Span span);
void move_tiles(Sema *s, const TileOperand *src, Expr *value, const TileOperand *dst, Span span);
Expr *place_value(Sema *s, const Place *place);
Region *place_region(Sema *s, const Place *place, int64_t behind);   // of the buffer's element, or so many behind it
void place_store(Sema *s, Block *out, const Place *place, Expr *value, Span span);

// ---- shapes.c ----
Buf *buffer_named(Sema *s, const Node *node);   // reports; NULL then
bool region_alone(Sema *s, const Node *node, const char *what, TileOperand *out);
bool region_pair(Sema *s, const Node *a, const Node *b, bool exchanged, TileOperand *out_a, TileOperand *out_b);
Region *region_element_of(Sema *s, const Node *node, bool or_whole);
bool element_place(Sema *s, const Node *node, Place *out);
void place_in_tensor(Sema *s, Place *place);           // an element of an im2col view is the tensor's
const View *written_view(Sema *s, const Node *node);   // x[i +: n, :], x.T
bool is_element(const Node *node);
bool check_tile_op(Sema *s, OpId op, const Arg *args, Span span);
Expr *known_extent(Sema *s, const Buf *buf, int dim);   // with compile-time values put in

// ---- casts.c ----
Type view_type(const View *view);
Type place_type(const Place *place);
const View *view_cast(Sema *s, const Node *call, const View *of);   // upcast and downcast; NULL: reported
bool is_peer_tile(Sema *s, const Node *call);
const View *view_of_peer(Sema *s, const Node *call);
bool place_may_be_stored(Sema *s, const Place *place, Span span);   // reports

// ---- index_map.c ----
bool has_index_map(const Node *param);
int argument_dim(const Node *param, int dim);   // the argument's dim that is this one alone; -1: none
// The view that the parameter's name is, without the buffer, and the extents of the argument; NULL: reported.
View *index_map_read(Sema *s, const Node *param, Expr *const *shape, Expr **places);
const char *index_map_text(Sema *s, const View *view);
void index_map_check(Sema *s, const View *view, Span span);   // reports places of several elements
const View *index_map_known(Sema *s,
                            const View *declared);   // with compile-time values, and limits where they are needed

// ---- shared_map.c ----
const Layout *shared_map_of(Sema *s, const Node *declaration, int rank, Expr *const *shape);   // NULL: as declared
Buf *shared_map_buffer(Sema *s, const Layout *map, const char *name, Type type, Span loc);
void shared_map_declared(Sema *s, const Buf *buf, const Node *declaration);   // it may have one
// The view is to be a region when the kernel is made again. NULL: it can be one; else why not.
const char *shared_map_ask(Sema *s, const View *view, const int64_t *tiles);
bool shared_maps_again(Sema *s, SharedMaps *maps, int errors);   // with what was asked, or without

// ---- im2col.c ----
bool is_im2col(const Node *node);
Buf *im2col_view(Sema *s, const Node *node);   // NULL: reported
// The view that a tensormap parameter maps, once the names of the function's body are known.
void resolve_view(Sema *s, const Node *param, Attr *tma);

bool read_extents(Sema *s, const Node *node, const Node *dims, bool dynamic, Expr **shape);   // reports

// ---- channels.c ----
typedef struct ChannelTiles {
    VEC(Buf *) all;
    Map *views;   // of those that lie otherwise than they were declared
} ChannelTiles;
Buf *channel_named(Sema *s, const Node *node);   // reports; NULL then
void channel_add_tile(Sema *s, Buf *channel, Buf *tile);
void channel_statement(Sema *s, const Node *node);
void channel_block(Sema *s, const Node *node);              // produce, consume, ordered
void channel_holds(Sema *s, Var *var, const Expr *value);   // `let var = acquire(..)`
bool is_held(Sema *s, const Node *node);                    // f.As, or f: a tile of the slot that f holds
bool is_held_scalar(Sema *s, const Node *node);             // f.n: one number of it
const View *held_tile(Sema *s, const Node *node);           // reports; NULL then
bool is_send(const Node *call);
void send_statement(Sema *s, const Node *call);
bool is_take(const Node *call);
SemaValue take_expression(Sema *s, const Node *call);

// ---- overlap.c ----
// Copies the sources of a tile operation that may overlap its destination.
void separate_operands(Sema *s, OpId op, int count, Arg *args, Span span);

// ---- decl.c ----
Attr *attributes(Sema *s, const Node *list, char where, Span *loc);   // @loc goes to *loc when given
void options_differ(Sema *s, const Node *list);          // of a grid or channel; reports one that is given twice
void take_layout(Sema *s, Buf *buf, const Node *node);   // of a declaration; NULL: it has none
bool layout_exchanges(const Node *layout, int rank);     // a tile so laid out is the transpose of a buffer
void exchange_last(Expr **shape, int count);
void declarations(Sema *s, const Node *node);

// ---- stmt.c ----
const char *context_text(CodeContext context);   // after "in"
void statement(Sema *s, const Node *node);
void body(Sema *s, const Node *block, Block *out);   // in a scope of its own
void statements(Sema *s, const Node *block);         // in the current scope
void emit(Sema *s, Stmt *stmt);

// ---- inline.c ----
bool host_value_fits(Sema *s, Expr *value, Span span);   // false: it would be too much where its name is used; reported
bool is_host_value(const Sema *s);                       // what a name stands for is put in its place
SemaValue inline_fn(Sema *s, const Node *fn, const Node *call);
void inline_macro(Sema *s, const Node *macro, const Node *call);

// ---- params.c ----
void parameters(Sema *s, const Node *kernel);                        // into s->func and the current scope
bool is_hidden_param(const Node *param);                             // a tensormap: callers do not pass it
void bind_choices(Sema *s);                                          // compile-time names in the body's scope
const Node *compile_time_name(const Node *func, const char *name);   // among the names in brackets; NULL: none
bool choices_exclude(Sema *s);                                       // the function's `when` does not hold for them
Expr *substitute_choices(Sema *s, Expr *expr);

// ---- func.c ----
void elaborate_item(Sema *s, int item);   // a kernel or program with all its variants, once
void elaborate_reference(Sema *s, const Node *node);
Func *elaborate_scalar(Sema *s, const Node *target, const ChoiceVec *choices, const char *name, const Node *block,
                       CodeContext context);   // a reference, or the block of a test
void tune_statement(Sema *s, const Node *node);
bool calls(const Node *node, const char *name);           // somewhere in it
int item_named(const Syntax *syntax, const char *name);   // the first kernel or program of that name; -1

// Builds one function and keeps it. False when there were errors: other variants would only repeat them.
bool make_function(Sema *s, int item, const char *name, const ChoiceVec *choices, bool called);

// ---- launch.c ----
void launch_statement(Sema *s, const Node *call);
void link_launches(Sema *s);   // calls -> functions, when all are there

// ---- variants.c ----
// The combinations of compile-time values that a declaration is made for; each a ChoiceVec. 0 after a report.
int combinations(Sema *s, const Node *node, const ChoiceVec **out);
bool types_differ(int count, const ChoiceVec *combinations);
const char *mangled(Sema *s, const char *name, const ChoiceVec *choices, bool types_only);
Choice *choice_named(ChoiceVec *choices, const char *name);
bool is_type_param(const Node *cparam);
void check_type_lists(Sema *s);   // of all kernels and programs, where they stand
// Of a compile-time name of a kernel, program, or variants of one:
Type usual_type(Sema *s, const Node *func,
                const Node *cparam);   // the first of `E: type in {..}`; TYPE_NONE: it lists none
bool check_type(Sema *s, const Node *func, const Node *cparam, Type type,
                Span span);   // any, or one that it lists; else reported
bool values_equal(SemaValue a, SemaValue b);
const char *constant_text(Arena *arena, SemaValue value);

// ---- tests.c ----
void elaborate_tests(Sema *s);
Sema *sema_new(Syntax *syntax, Arena *arena, Failure *failure, DiagSink *sink, const ElaborateOptions *options);
