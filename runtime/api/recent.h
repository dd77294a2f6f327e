// The artefacts that a context compiled last, so that the same compile gives the same artefact again.
//
// In: keys of runtime/cache/. Out: artefacts, shared with those who have them: each holder releases its own.
#pragma once
#include "runtime/api/api.h"

void recent_open(RecentArtefacts *recent);
void recent_close(RecentArtefacts *recent);
// The artefact of a key, now the caller's too; NULL: it is not there.
TilecArtefact *recent_find(RecentArtefacts *recent, CacheHash key);
// Keeps an artefact with its key. Those that were not asked for the longest time go.
void recent_keep(RecentArtefacts *recent, TilecArtefact *artefact);
