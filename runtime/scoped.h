// An arena for a part of a job, freed however the part ends.
#pragma once
#include "support/arena.h"
#include "support/fail.h"
#include <stdbool.h>

// Calls `work` with an arena of its own and frees it afterwards, also when `work` leaves through the failure point
// (which then goes on to the caller's). What `work` leaves behind must not lie in that arena.
bool scoped(Failure *failure, bool (*work)(void *user, Arena *arena), void *user);
