// A layout as a matrix over F2, by which conversions and costs are computed.
#pragma once
#include "layout/layout.h"
#include "layout/linear.h"

// Inputs and outputs are called "0", "1", ...; outputs have the fewest bits that hold their range.
Linear layout_to_linear(LayoutContext *cx, const Layout *a);   // refuses what is not linear over F2
// The images of the bits of the digits, where the map is linear on these; extents may be no powers of two.
LayoutBits layout_images(LayoutContext *cx, const Layout *a);
