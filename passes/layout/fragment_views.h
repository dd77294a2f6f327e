// One view of a fragment per loop.
#pragma once
#include "passes/pass.h"

// Afterwards every `parallel` loop reads each fragment through one list of iterators and constants; copies of fragments serve
// the others. True when something changed.
bool separate_views(PassContext *context, Func *kernel);
