// Rewrites of tile programs.
//
// In: tile-stage kernels. Out: tile-stage kernels with other operands, tiles or loops (simplify: any stage). The
// pipeline runs these passes at several places; passes.def has the order. Files, one pass each:
//
//     simplify.c             folds expressions and statements by known facts; bind_indices.c: names of nested indices;
//                            pieces_of_tiles.c: tiles that a loop fills piece by piece, as gathers;
//                            side_tables.c: gathers by tables that the kernel makes
//     swap_operands.c        computes the transposed product; pad_tiles.c: widens tiles for wgmma; operand_tiles.c: adds
//                            tiles for operands that wgmma cannot read where they are
//     normalize_loops.c      one form of the loops that move tiles
//                            counted_loops.c: of `while` and `break`
//     split_tiles.c          tiles that one buffer holds become buffers; loop_tiles.c: one after the other
//     raise_copies.c         loops that are copies become copies; join_copies.c, join_branches.c: pieces, and loads of two branches, become one; direct_copies.c, direct_gathers.c:
//                            without tiles on the way; transposed_tiles.c: of tiles that are read as they lie in the tensor; normal_gathers.c: one
//                            form of loops that gather (loop_stores.c: what a loop stores)
//     fuse_loops.c           loops that go on where the one before ends become one
//     join_products.c        products of neighbouring slices become one; neighbours.c: regions that lie next to each other
//     pipeline_loops.c       serial loops of loads and products load ahead
//     stage_vectors.c        vectors that their steps read come with the tiles
//     merge_fragments.c      fragments that only hand elements on have no registers of their own
//     stream_k.c             shares the k steps of all tiles among CTAs
//     split_k.c              ... those of a tile among the CTAs of a cluster; k_loop.c: the loop that both take
//     repack.c               copies operands that TMA cannot load to workspace (no pass)
//     hoist_guards.c         hoists conditions out of parallel loops; hoist_indices.c: indices of gathers out of serial ones
//     partial_reductions.c   reduces in each thread first, across threads after the loop
//     peel_loops.c           peels iterations with a condition of their own
//     lazy_rescale.c         skips the rescale of online softmax in warps whose row maximum did not change
//
// This header: what the tile search (passes/cost/) asks of the passes.
#pragma once
#include "ir/schedule.h"
#include "passes/specialize/warp_specialize.h"

// ---- swap_operands.c, pad_tiles.c, operand_tiles.c ----
// A copy of the tile-stage kernel with its operands swapped, its tiles padded or tiles for operands added, and how it is then
// specialized; NULL: it stays as it is.
Func *operands_swapped(Arena *arena, const Target *target, const Func *kernel, Specialization *how);
// In place: adds columns to right operands that are contiguous along n and whose rows are no whole swizzle spans, and
// to operands along k that hold all columns of a tensor, and not a multiple of the instruction's k.
// False: no tile can be padded. The caller decides whether the kernel is better for it.
bool pad_tiles(Arena *arena, const Target *target, Func *kernel);
bool tiles_lack_columns(const Target *target, const Func *kernel);
// What keeps operands from wgmma: right ones are in registers, or also bytes are not contiguous along k; bytes multiply 16-bit
// elements.
typedef enum { LACK_NONE, LACK_TILE, LACK_ORDER, LACK_TYPE } OperandLack;
OperandLack operands_lack(const Func *kernel);
// In place: gives them tiles; with `left` also to left operands in registers. False: then not all products can be wgmma, and the kernel may be left changed.
bool add_operand_tiles(Arena *arena, const Target *target, Func *kernel, bool left);
// In place: bytes that multiply 16-bit elements are converted in registers before the product.
void convert_operands(Arena *arena, Func *kernel);
// In place: right operands that are computed in registers, or converted from bytes, and reach their only product in a tile, are read
// without it. False: there is none.
bool read_computed_directly(Arena *arena, Func *kernel);
bool multiplies_narrow(const Stmt *stmt,
                       bool right);   // the statement is a product with such a right operand, or left one

// ---- one form for what has several, in the order in which they run; in place, true: something changed ----
bool normalize_loops(Arena *arena, Func *kernel);
// What it is made of: `v += c;`; how often a statement sets a variable, and what it was given before block[at], if that is known and
// still the same (else NULL); a `while` at block[at] that counts one is a `for` then; the `if (..) break;` that a loop begins with, the only one (-1: none).
bool steps_by(Arena *arena, const Stmt *stmt, int64_t *by);
int assignments(const Stmt *top, const Var *var);
Expr *value_before(const Block *block, int at, const Var *var);
bool count_while(Arena *arena, Block *block, int at);
int leading_break(const Stmt *loop);
bool split_tiles(Arena *arena, const Target *target, Func *kernel);
bool split_loop_tiles(Arena *arena, const Target *target, Func *kernel);
bool raise_copies(Arena *arena, Func *kernel);   // and what it is made of:
bool gather_directly(Arena *arena, Func *kernel);
bool join_branches(Arena *arena, Func *kernel);
bool join_copies(Arena *arena, Func *kernel);
bool copy_directly(Arena *arena, Func *kernel);
bool load_as_stored(Arena *arena, Func *kernel);
bool fuse_loops(Arena *arena, Func *kernel);
bool join_products(Arena *arena, Func *kernel);
bool merge_fragments(Arena *arena, Func *kernel);
bool pipeline_loops(Arena *arena, const Target *target, Func *kernel);
bool stage_vectors(Arena *arena, const Target *target, Func *kernel);
bool is_offset(const Expr *index, const Var *iterator);   // start + iterator, in 64 bits (raise_copies.c)
void undeclare(Arena *arena, Func *kernel, Buf *buf);     // removes its declaration

// ---- lazy_rescale.c ----
// The loop, of the block, multiplies an accumulator by a factor that is nearly always 1, and warps skip it then: a row's maximum
// counts as grown only where it has grown by much.
bool rescales_seldom(const Block *block, const Stmt *loop);

// ---- bind_indices.c ----
bool bind_indices(Arena *arena, Block *block);   // in place; true: something changed
bool indices_nest(const Stmt *store);            // its move would be bound

// ---- pieces_of_tiles.c ----
bool join_pieces(Arena *arena, Block *block);   // in place; true: something changed

// ---- side_tables.c ----
bool read_side_tables(Arena *arena, Func *kernel);   // in place; true: something changed

// ---- split_k.c ----
bool split_serves_beyond(const Func *kernel);   // its CTAs may share loads: a tile beyond the grid may be computed
// Why the CTAs of a cluster cannot share the k steps of one tile of the kernel; NULL: they can.
const char *split_refused(Arena *arena, const Target *target, const Func *kernel, const TileSplit *split);
// Registers of a thread for its share of the sums.
int64_t split_registers(Arena *arena, const Target *target, const Func *kernel, int ctas);
// Shared memory that a CTA's part of the tile needs, bytes.
int64_t split_bytes(Arena *arena, const Func *kernel);
Func *split_clone(Arena *arena, const Func *kernel, int ctas);   // of a kernel that can be split

// The same for as many CTAs as the launch chooses, anywhere on the device, with workspace and in two launches.
typedef struct SplitKWorkspace {
    Func *program;        // a variant of the kernel: the two launches
    Func *slices, *sum;   // kernels
} SplitKWorkspace;
bool can_split_k_workspace(Arena *arena, const Func *kernel);
// For a kernel that can; the kernel is not changed. The program's condition is the kernel's and what its tensor maps
// need. The new names do not occur in the module.
SplitKWorkspace split_k_workspace(Arena *arena, const Target *target, const Module *module, const Func *kernel);

// ---- repack.c ----
typedef VEC(Func *) FuncVec;
enum { MOST_REPACKED_PITCHES = 2 };
typedef struct Repacked {
    int count;
    Func *programs[1 << MOST_REPACKED_PITCHES];   // by the bits of the pitches whose operands they copy
    Func *rows;                                   // the kernel that they launch behind the copies
    FuncVec copies;                               // kernels, one for each type
} Repacked;
// How results are stored behind copies: never (the kernel is not of the form), from registers, in vectors.
typedef enum { REPACK_NEVER, REPACK_SCATTERED, REPACK_VECTORS } RepackStores;
RepackStores repack_stores(Arena *arena, const Target *target, const Func *kernel);
// For a kernel that can; it is not changed. The kernel for rows as copies have them: of each tile one, all of one name, which
// does not occur in the module.
Func *repack_rows(Arena *arena, const Target *target, const Module *module, const Func *kernel);
// Programs of that kernel, with its cost, which launch `rows`.
Repacked repack(Arena *arena, const Target *target, const Module *module, const Func *kernel, Func *rows);
// Bytes of a step's tiles that such a program has copied before, by the name of the grid that chooses them.
typedef struct RepackBytes {
    int64_t of[2];
    int launches;
} RepackBytes;
RepackBytes repack_bytes(Arena *arena, const Target *target, const Func *kernel, int pitches);
