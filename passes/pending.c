// Passes that are not written yet: they change nothing. A pass that gets its file leaves this one.
#include "passes/pass.h"

#define PENDING(suffix)                                                                                                \
    bool pass_##suffix(PassContext *context, Func *kernel) {                                                           \
        (void)context, (void)kernel;                                                                                   \
        return false;                                                                                                  \
    }
#if !__has_include("passes/schedule.c")
PENDING(schedule)
#endif
#if !__has_include("passes/select.c")
PENDING(select)
#endif
#if !__has_include("passes/ring.c")
PENDING(ring)
#endif
#if !__has_include("passes/pipeline.c")
PENDING(pipeline)
#endif
#if !__has_include("passes/layout_inference.c")
PENDING(layout_inference)
#endif
#if !__has_include("passes/materialize.c")
PENDING(materialize)
#endif
#if !__has_include("passes/swizzle_allocation.c")
PENDING(swizzle_allocation)
#endif
#if !__has_include("passes/insert_sync.c")
PENDING(insert_sync)
#endif
#if !__has_include("passes/lower_tile_op.c")
PENDING(lower_tile_op)
#endif
#if !__has_include("passes/vectorize.c")
PENDING(vectorize)
#endif
#if !__has_include("passes/unroll.c")
PENDING(unroll)
#endif
