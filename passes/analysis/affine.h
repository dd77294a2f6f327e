// Integers that are partly known: a constant plus multiples of unknowns. insert-sync represents index values in this
// form, so that `k * 64 + base` and `(k + 1) * 64 + base` differ by 64 for any base.
#pragma once
#include "passes/analysis/util.h"

enum { AFFINE_TERMS = 4 };

typedef struct Affine {
    bool known;   // false: nothing is known, not even equality with itself
    int64_t constant;
    int count;   // terms, in order of `atom`
    struct {
        int atom;
        int64_t factor;
    } terms[AFFINE_TERMS];
} Affine;

// Values of variables, and the unknowns found so far. Equal expressions over unchanged variables are one unknown.
typedef struct AffineEnv AffineEnv;

AffineEnv *affine_env(Arena *arena);
void affine_reset(AffineEnv *env);   // forgets all bindings
void affine_bind(AffineEnv *env, const Var *var, Affine value);
void affine_forget(AffineEnv *env, const Var *var);   // its value is a new unknown
Affine affine_of(AffineEnv *env, const Expr *expr);

Affine affine_const(int64_t value);
Affine affine_more(AffineEnv *env, int64_t multiple,
                   int64_t most);   // a new unknown: 0 or a multiple of `multiple`, at most `most`
// Lower and upper bound of the number, if each unknown has a range; INT64_MIN or INT64_MAX: unbounded. False: some
// unknown has no range.
bool affine_range(const AffineEnv *env, const Affine *a, int64_t *low, int64_t *high);
Affine affine_add(Affine a, Affine b, int64_t factor);   // a + factor * b
bool affine_is_const(const Affine *a, int64_t *value);
bool affine_same(const Affine *a, const Affine *b);
