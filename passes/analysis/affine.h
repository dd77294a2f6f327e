// Integers that are partly known: a constant plus multiples of unknowns. What insert-sync computes index values in, so
// that `k * 64 + base` and `(k + 1) * 64 + base` are 64 apart whatever base is.
#pragma once
#include "passes/analysis/util.h"

enum { AFFINE_TERMS = 4 };

typedef struct Affine {
    bool known;   // false: nothing is known, not even that it equals itself
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
void affine_reset(AffineEnv *env);   // nothing is bound
void affine_bind(AffineEnv *env, const Var *var, Affine value);
void affine_forget(AffineEnv *env, const Var *var);   // a new unknown from here on
Affine affine_of(AffineEnv *env, const Expr *expr);

Affine affine_const(int64_t value);
Affine affine_more(AffineEnv *env, int64_t multiple,
                   int64_t most);   // a new unknown: 0 or a multiple of this, up to most
// The least and the largest that the number may be, as far as unknowns are such: INT64_MIN or INT64_MAX where it has no
// end. False when there are others.
bool affine_range(const AffineEnv *env, const Affine *a, int64_t *low, int64_t *high);
Affine affine_add(Affine a, Affine b, int64_t factor);   // a + factor * b
bool affine_is_const(const Affine *a, int64_t *value);
bool affine_distance(const Affine *a, const Affine *b, int64_t *distance);   // b - a, when that is a constant
bool affine_same(const Affine *a, const Affine *b);
