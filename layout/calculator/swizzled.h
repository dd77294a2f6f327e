// Nested layouts with a swizzle, and TileLang's bank layouts as such.
#pragma once
#include "layout/calculator/cute.h"
#include "layout/layout.h"

// A layout followed by a swizzle: offset -> Sw(base + layout(coordinate)).
typedef struct Swizzled {
    Swizzle swizzle;
    int64_t base;
    Cute layout;
} Swizzled;

// The same map of bytes where offsets now count units of `to` bits instead of `from` bits (powers of two). Refused
// when a unit would be torn apart (M too small).
Swizzle swizzle_recast(LayoutContext *cx, Swizzle s, int from_bits, int to_bits);

int64_t swizzled_at(Swizzled a, int64_t index);
// (Sw o A) o B = Sw o (A o B).
Swizzled swizzled_composition(LayoutContext *cx, Swizzled a, Cute b);
void swizzled_print(StrBuf *out, Swizzled a);   // Sw<3,4,3> o (8,64):(64,1); the swizzle is omitted when B = 0
Swizzled swizzled_scan(Scan *scan);             // that, or a plain layout
// A tile in shared memory of digits, its outputs row-major. (NULL, after a refusal: anything.)
Swizzled swizzled_of_layout(LayoutContext *cx, const Layout *layout);

// ---- TileLang's layouts of a [rows, columns] tile in shared memory ----
// `panel_chunks` 16-byte chunks (8, 4, 2: full, half, quarter bank) make a panel; panels follow each other. Within a
// panel, chunk c of row i is at c ^ (i % 8 * panel_chunks / 8).
//   physical = (panel, i / 8, (i % 8 or i % rows) * panel + chunk * v + j % v), v elements per chunk
// As a swizzle of bytes: Sw<log2 panel_chunks, 4, 3> over the panel-major row-major base, for rows % 8 == 0. With 4
// rows and more than one panel the pitch of a panel reaches into the swizzle's source bits, so that the formula is no
// swizzle of addresses: `bank_swizzle` refuses it, `bank_element` still answers.
typedef struct BankTile {
    int64_t rows, columns;
    int element_bits, panel_chunks;
} BankTile;

bool bank_check(LayoutContext *cx, BankTile tile);   // rows 4 or a multiple of 8; whole panels
void bank_shape(BankTile tile, int64_t shape[3]);    // exact extents of the three indices
void bank_index(BankTile tile, int64_t i, int64_t j, int64_t index[3]);
int64_t bank_element(BankTile tile, int64_t i, int64_t j);   // row-major over bank_shape
Swizzled bank_swizzle(LayoutContext *cx, BankTile tile);     // inputs (i, j), in elements; the equivalence above
// Rows padded by `pad` elements: (rows, columns):(columns + pad, 1). TileLang pads by 128 bits.
Cute padded_rows(LayoutContext *cx, int64_t rows, int64_t columns, int64_t pad);
