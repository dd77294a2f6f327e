// The algebra of the compiler's layouts: new maps from old ones, exact or refused.
//
// Each function returns the map that its definition says, at every coordinate of the domain, or NULL and a reason in
// the context. Where both operands are linear over F2 (extents are powers of two, no sum carries) it is computed by
// elimination on bits; else on digits, which refuses what digits cannot say. Results are in normal form.
#pragma once
#include "layout/calculator/linear_algebra.h"
#include "layout/matrix.h"

const Layout *layout_of_linear(LayoutContext *cx, Linear a, int element_bits);   // names are forgotten

// ---- operations ----
const Layout *layout_compose(LayoutContext *cx, const Layout *outer, const Layout *inner);   // x -> outer(inner(x))
// r with a(r(y)) = y, the smallest such: refused unless a reaches every coordinate of its output box.
const Layout *layout_right_inverse(LayoutContext *cx, const Layout *a);
// l with l(a(x)) = x: refused unless a is injective. Outside of a's values l is anything.
const Layout *layout_left_inverse(LayoutContext *cx, const Layout *a);
// z with outer(z(x)) = a(x): where in `outer` the values of `a` are.
const Layout *layout_invert_and_compose(LayoutContext *cx, const Layout *a, const Layout *outer);
// a on the fast digits of each input, b on the slow ones, whose values are multiplied by a's output extents.
const Layout *layout_product(LayoutContext *cx, const Layout *a, const Layout *b);
const Layout *layout_divide(LayoutContext *cx, const Layout *a, const Layout *b);   // c with a = product(b, c)
// One input: an injective layout with the values of `a`; and one onto the coordinates of `a` whose change changes
// nothing.
const Layout *layout_image(LayoutContext *cx, const Layout *a);
const Layout *layout_kernel(LayoutContext *cx, const Layout *a);

int64_t layout_size_in(const Layout *layout);             // product over inputs
bool layout_same_map(const Layout *a, const Layout *b);   // whatever their forms
bool layout_injective(const Layout *layout);              // broadcasts make it false
