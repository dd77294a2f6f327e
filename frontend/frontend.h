// Text to IR.
//
// In: the text of a `.tile` file, a reader for its imports, -D defines. Out: a module at the stage of the text,
// verified; or diagnostics. Files in order:
//
//     lang.l, lang.y, parse.c                  scanner, grammar
//     foreign.def, foreign.c                   what other languages write otherwise
//     ast.c, syntax.c                          syntax trees; imports
//     elaborate.c, variants.c                  the entry points; compile-time values, a variant per combination
//     names.c, params.c, func.c, decl.c        scopes; parameters and dims; kernels and programs; buffers, attributes
//     stmt.c, launch.c, inline.c               statements; launches in programs; fn and macro
//     expr.c, types.c, fold.c, calls.c         expressions, conversions, constants, operations
//     shapes.c, overlap.c                      regions and shapes; operands that overlap
//     tests.c                                  tests and their bindings
//     declarations.c                           what a file declares, for hosts that look at it before a compile
//
// Elaboration makes the IR that passes see: compile-time names, consts and tunables are replaced by their values, fn
// and macro are inlined, imports are merged. A compile-time name that is not a tensor dim becomes an i64 (or f32, bool)
// scalar parameter; either way the kernel's `when` states the value, so that one artefact holds several
// specialisations.
#pragma once
#include "ir/ir.h"

typedef struct Syntax Syntax;   // a parsed file with its imports

// Reads an imported file: its text (in `arena`), or NULL with *why. `from` is the importing file's name. `resolved` is
// the file's name for messages, `identity` the same for every spelling of its path.
typedef struct ImportReader {
    const char *(*read)(void *user, Arena *arena, const char *from, const char *path, const char **resolved,
                        const char **identity, size_t *length, const char **why);
    const char *(*identity)(void *user, Arena *arena, const char *path);   // of the first file; NULL: its name
    void *user;
} ImportReader;

// Parses `text` (any bytes). NULL when there were syntax errors (all reported). The text must outlive the syntax.
Syntax *syntax_parse(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text, size_t length,
                     const ImportReader *reader);

// Whether `text` parses; reports what does not. Imports are not read.
bool syntax_check(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text, size_t length);

typedef struct Define {   // -D NAME=VALUE, a tuning record's entry, or a test's own choice
    const char *name;     // `gemm.BM`: the tunable of one kernel, before `BM`
    const char *value;    // text of a constant expression or a type name
} Define;

// Combinations of tunables are tried in order ("the first that fits"), from number 0 on, the last name varying fastest.
// Says of this kernel, elaborated, which combination is to be tried: `combination` itself where it fits, else a later
// one. `last`: how many values the last name has; 0: the kernel has no tunables, and is taken as it was written where
// `combination` does not fit.
enum { MOST_FITTED = 1 << 13 };   // that are tried: each is elaborated
typedef int (*FitsFn)(void *user, Module *module, Func *kernel, int combination, int last);

typedef struct ElaborateOptions {
    int define_count;
    const Define *defines;
    const char *only;   // elaborate this kernel or program (and what it calls) alone; NULL: all
    FitsFn fits;        // NULL: the first combination
    void *user;
    int test_choice;   // 1 + index of syntax_test_choices: its tests alone; 0: those that these values serve
    // The module was elaborated and verified with other values of tunables: kernels that have some are verified as `fits` is asked
    // of them, the rest is the same.
    bool again;
} ElaborateOptions;

// The module for these values. Without a value for a compile-time name: one variant for each distinct value in the
// file's tests. Tests of the module are those that need just these consts and tunables. NULL when errors were reported.
Module *elaborate(Syntax *syntax, Arena *arena, Failure *failure, DiagSink *sink, const ElaborateOptions *options);

// The file's tests need one elaboration for each distinct choice of consts and tunables: choice `index` as defines.
// Returns the number of choices; fills *defines and *count for `index` when it is in range.
int syntax_test_choices(Syntax *syntax, Arena *arena, int index, const Define **defines, int *count);

// The name that a define sets for a test: of a compile-time name or tunable of its kernel, or of one that its program calls, or of a
// const of the file. NULL: it sets nothing there.
const char *syntax_define_for(const Syntax *syntax, const Test *test, const Define *define);

// Compile-time choices there are (for tune, -v and messages): tunables with their candidate values.
typedef struct Tunable {
    const char *kernel, *name;
    int count;
    const int64_t *values;
} Tunable;
int syntax_tunables(Syntax *syntax, Arena *arena, int define_count, const Define *defines, const Tunable **tunables);
// The types that -D gives a kernel's compile-time names, as "E=f16,F=f32"; without those that they have anyway. "": there are none.
const char *syntax_types_given(Syntax *syntax, Arena *arena, int count, const Define *defines, const char *kernel);

// Where a kernel is made for several types, as its tests ask: the names of types that no define sets, each with the usual one as its
// value, or NULL where it has no list. Returns their number.
int syntax_usual_types(Syntax *syntax, Arena *arena, int count, const Define *defines, const char *kernel,
                       const Define **out);

// What the file declares, as written, in JSON: consts, and kernels and programs with their compile-time names, tunables and
// parameters. docs/reference/launch-plan.md has the format.
void syntax_declarations(const Syntax *syntax, StrBuf *out);

// The words that the grammar knows, most of which may be names too. Returns their number.
int syntax_keywords(Arena *arena, const char *const **words);

// parse + elaborate + verify of a printed module: what --roundtrip-each and `tilec opt` use.
Module *parse_module(Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text);
// A scalar host expression over named i64/f64 values (launch conditions and grid extents of a manifest), and its value.
Expr *parse_host_expr(Arena *arena, Failure *failure, DiagSink *sink, const char *text, const char *const *names,
                      int count, Var **vars);
