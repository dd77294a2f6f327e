// The tuning record of a host: what was measured there, a SQLite database. `tilec tune` adds each measurement when it is made, so
// that a run that was ended goes on where it was; any number of processes may add at the same time. Databases of several hosts
// are merged. Builds read texts (runtime/compile/record.h), which `tilec tune` writes from it.
//
// A measurement is known by all that it depends on: kernel, target, shape and tunables, device, driver and clocks, the code that ran
// (the hash of its artefact), and how it was timed. On a local disk the database has a write-ahead log; that needs memory that
// the processes share, so on a network file system it has a rollback journal. There each host has a file of its own all
// the same: its name is that of the host.
#pragma once
#include "runtime/compile/record.h"
#include "support/fail.h"

typedef struct Measurements Measurements;

// TILEC_TUNING, else HOST.tuning in the folder `tilec` of XDG_STATE_HOME (~/.local/state). NULL: there is no home folder.
const char *measurements_path(Arena *arena);
// Opens a database, and makes it where there is none. NULL: reported.
Measurements *measurements_open(Arena *arena, DiagSink *sink, const char *path);
void measurements_close(Measurements *all);
// Fills the times of a measurement with this key. False: there is none, or reported.
bool measurements_find(Measurements *all, Arena *arena, RecordEntry *out);
// Adds it, in place of an earlier one. False: reported.
bool measurements_add(Measurements *all, Arena *arena, const RecordEntry *one);
// Adds those of another database, or of a text; of two with one key the later. *count: how many there were. False: reported.
bool measurements_merge(Measurements *all, Arena *arena, const char *path, int64_t *count);
// All as a text, in the order of their keys. False: reported.
bool measurements_export(Measurements *all, Arena *arena, StrBuf *out);
