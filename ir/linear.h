// Integer expressions as sums: factor * atom + ... + constant. The normal form under facts.h and simplify.c; not for
// other folders.
//
// An atom is anything but a sum or a multiple: a variable, a quotient, a product of two unknowns, a load. Two sums are
// the same function exactly when they have the same terms. Factors wrap to the type, as the arithmetic does: rewriting
// a sum into this form and back is valid for every value, overflow included. Reasoning about the sum as a true integer
// (dividing it, comparing it) is not: that needs `linear_exact`.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "support/numbers.h"

typedef struct Term {
    int64_t factor;   // not 0
    Expr *atom;
} Term;

enum { LINEAR_MAX = 32 };

typedef struct LinearSum {
    Type type;
    int count;
    Term terms[LINEAR_MAX];   // in order of first appearance
    int64_t constant;
    bool full;   // had more terms than fit: good for nothing
} LinearSum;

typedef struct WideRange {
    Int128 low, high;
} WideRange;   // a range of true integers, before any wrapping

LinearSum linear_new(Type type);
LinearSum linear_of(Arena *arena, const Expr *expr);
bool linear_splits(const Expr *expr);   // linear_of has smaller atoms than the expression itself
void linear_add(Arena *arena, LinearSum *sum, const Expr *expr, int64_t factor);   // sum += factor * expr
void linear_add_term(LinearSum *sum, Expr *atom, int64_t factor);
void linear_add_linear(LinearSum *sum, const LinearSum *other, int64_t factor);
void linear_add_constant(LinearSum *sum, int64_t constant);
LinearSum linear_divided(const LinearSum *sum, int64_t divisor);   // all factors are multiples of it
bool linear_is_constant(const LinearSum *sum, int64_t value);
int64_t linear_factor(const LinearSum *sum, const Expr *atom);   // 0 when absent
int64_t linear_gcd(const LinearSum *sum);                        // of the factors alone; 0: none
Expr *linear_expr(Arena *arena, const LinearSum *sum);           // canonical order
bool atoms_equal(const Expr *a, const Expr *b);

// Factors of a product atom, its own only factor otherwise; their number (0: too many).
enum { PRODUCT_MAX = 8 };
int product_factors(const Expr *atom, Expr *factors[PRODUCT_MAX]);

WideRange linear_range(const Facts *facts, const LinearSum *sum);
bool wide_fits(Type type, WideRange range);
bool linear_exact(const Facts *facts, const LinearSum *sum);   // its value as true integers never leaves the type
Range type_range(Type type);

Int128 floor_div128(Int128 a, Int128 b);
bool linear_prove_nonnegative(const Facts *facts, const LinearSum *sum);   // as a true integer
int64_t multiple_product(int64_t a, int64_t b);                            // of two multiples, capped at 2^62

// ---- what facts.c keeps ----
const Expr *facts_binding(const Facts *facts, const Var *var);   // a let's value; NULL
Range facts_range(const Facts *facts, const Var *var);
int64_t facts_multiple(const Facts *facts, const Var *var);
bool facts_known_range(const Facts *facts, const Expr *e, Range *range);   // what facts_keep_range said, while it holds
void facts_keep_range(const Facts *facts, const Expr *e, Range range);
bool facts_multiple_known(const Facts *facts, const LinearSum *sum, int64_t divisor);   // by an assumption
