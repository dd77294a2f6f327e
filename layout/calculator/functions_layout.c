// Functions of the calculator on the compiler's own layouts, which are texts here: what dumps print can be asked about.
#include "layout/calculator/algebra.h"
#include "layout/calculator/functions.h"

static const Layout *as_layout(Calc *c, CalcValue v) {
    enum { BYTE = 8 };
    const char *why = NULL, *text = as_text(c, v);
    const Layout *layout = c->cx->failed ? NULL : layout_parse(c->cx->arena, text, BYTE, &why);
    if (why) layout_refuse(c->cx, "%s", why);
    return layout;
}

static CalcValue of_layout(Calc *c, const Layout *layout) {
    return of_text(layout && !c->cx->failed ? layout_text(c->cx->arena, layout) : "");
}

#define OF_ONE(op)                                                                                                     \
    CalcValue f_##op(Calc *c, const CalcValue *v, int count) {                                                         \
        (void)count;                                                                                                   \
        const Layout *a = as_layout(c, v[0]);                                                                          \
        return of_layout(c, a ? op(c->cx, a) : NULL);                                                                  \
    }
OF_ONE(layout_right_inverse)
OF_ONE(layout_left_inverse)
OF_ONE(layout_image)
OF_ONE(layout_kernel)

#define OF_TWO(op)                                                                                                     \
    CalcValue f_##op(Calc *c, const CalcValue *v, int count) {                                                         \
        (void)count;                                                                                                   \
        const Layout *a = as_layout(c, v[0]), *b = as_layout(c, v[1]);                                                 \
        return of_layout(c, a && b ? op(c->cx, a, b) : NULL);                                                          \
    }
OF_TWO(layout_compose)
OF_TWO(layout_invert_and_compose)
OF_TWO(layout_product)
OF_TWO(layout_divide)

CalcValue f_layout_injective(Calc *c, const CalcValue *v, int count) {
    (void)count;
    const Layout *a = as_layout(c, v[0]);
    return of_int(a && layout_injective(a));
}
