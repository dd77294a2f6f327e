// The layout of a shared buffer that costs its accesses least.
//
// Candidates are tried in this order on all accesses. The least cost wins, extra wavefronts (a bank conflict each) and
// extra accesses, the earlier candidate on a tie; cost 0 ends the search:
//     row-major; the full, half and quarter bank swizzles (panels of 128, 64, 32 bytes, as for TMA and wgmma);
//     row-major with the XORs that make the wavefronts of all accesses together the fewest (layout/shared_swizzle.h),
//     the longest runs first; rows padded by one access, where that adds no more than half a tile.
// A layout that splits a 16-byte run is illegal for cp.async and ldmatrix, and costs more accesses elsewhere. An access in
// loops counts as often as they repeat it.
#pragma once
#include "passes/analysis/shared_access.h"
#include "passes/pass.h"

typedef VEC(const SharedAccess *) AccessVec;

// Of the buffer's last two dims; `accesses` NULL: there are none.
const Layout *choose_shared_layout(const PassContext *context, const AccessVec *accesses, const Buf *buf);
