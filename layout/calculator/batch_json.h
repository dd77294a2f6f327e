// The JSON half of layout/calculator/batch.h.
#pragma once
#include "support/arena.h"

char *batch_json(Arena *arena, const char *line, size_t length);   // one JSON object -> one JSON object
