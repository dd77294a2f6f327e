// The JSON half of layout/batch.h.
#pragma once
#include "support/arena.h"

char *batch_json(Arena *arena, const char *line);   // one JSON object -> one JSON object
