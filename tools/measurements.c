#include "tools/measurements.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { WAIT = 60000, AGAIN = 5, FORMAT = 1 };   // milliseconds for another writer, between tries; PRAGMA user_version

struct Measurements {
    sqlite3 *database;
    DiagSink *sink;
    const char *path;
};

// Columns: those of the key, in this order, and the others.
#define KEY "kernel, text, target, device, shape, tuned, driver, clocks, artefact, method"
enum { KEYS = 10 };
#define OTHERS "us, us_low, us_high, tilec, at"

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS measurements ("
    "kernel TEXT NOT NULL, text TEXT NOT NULL, target TEXT NOT NULL, device TEXT NOT NULL, "
    "shape TEXT NOT NULL, tuned TEXT NOT NULL, driver TEXT NOT NULL, clocks TEXT NOT NULL, "
    "artefact TEXT NOT NULL, method TEXT NOT NULL, "
    "us REAL NOT NULL, us_low REAL NOT NULL, us_high REAL NOT NULL, tilec TEXT NOT NULL, at INTEGER NOT NULL, "
    "PRIMARY KEY (" KEY ")) WITHOUT ROWID;";

#define LATER                                                                                                          \
    " ON CONFLICT DO UPDATE SET us = excluded.us, us_low = excluded.us_low, us_high = excluded.us_high, "              \
    "tilec = excluded.tilec, at = excluded.at WHERE excluded.at >= at"

static bool problem(Measurements *all, const char *why) {
    diag(all->sink, (Span){0}, T_TUNING_RECORD, all->path, why);
    return false;
}

static bool refused(Measurements *all) {
    return problem(all, sqlite3_errmsg(all->database));
}

static bool execute(Measurements *all, const char *text) {
    return sqlite3_exec(all->database, text, NULL, NULL, NULL) == SQLITE_OK || refused(all);
}

// ---- opening ----

const char *measurements_path(Arena *arena) {
    const char *given = getenv("TILEC_TUNING"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char host[256] = "host";
    if (given && given[0]) return given;
    gethostname(host, sizeof host - 1);
    if (state && state[0]) return arena_printf(arena, "%s/tilec/%s.tuning", state, host);
    return home && home[0] ? arena_printf(arena, "%s/.local/state/tilec/%s.tuning", home, host) : NULL;
}

static void make_folders_of(Arena *arena, const char *path) {
    char *folder = arena_strdup(arena, path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0777);
        *slash = '/';
    }
}

// Whether processes of one host cannot share memory through its files, or locks are not to be relied on.
static bool is_on_network(Arena *arena, const char *path) {
    static const unsigned kinds[] = {0x6969 /* NFS */,        0xff534d42 /* CIFS */, 0xfe534d42 /* SMB 2 */,
                                     0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */, 0x19830326 /* BeeGFS */,
                                     0x00c36400 /* Ceph */,   0x01021997 /* 9P */,   0x65735546 /* FUSE */};
    struct statfs info;
    if (statfs(path_beside(arena, path, "."), &info) != 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned)info.f_type == kinds[i]) return true;
    return false;
}

static bool read_number(Measurements *all, const char *text, int *out) {
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(all->database, text, -1, &query, NULL) != SQLITE_OK) return refused(all);
    bool ok = sqlite3_step(query) == SQLITE_ROW;
    *out = ok ? sqlite3_column_int(query, 0) : 0;
    sqlite3_finalize(query);
    return ok || refused(all);
}

// Several processes may open a new file at once. SQLite needs the file alone for this, and calls no busy handler, since
// two that wait for each other would never end.
static bool set_journal(Measurements *all, const char *text) {
    int code = SQLITE_BUSY;
    for (int waited = 0; code == SQLITE_BUSY && waited < WAIT; waited += AGAIN) {
        if (waited > 0) sqlite3_sleep(AGAIN);
        code = sqlite3_exec(all->database, text, NULL, NULL, NULL);
    }
    return code == SQLITE_OK || refused(all);
}

static bool prepare(Measurements *all, bool on_network) {
    int format;
    sqlite3_busy_timeout(all->database, WAIT);
    if (!read_number(all, "PRAGMA user_version", &format)) return false;
    if (format > FORMAT) return problem(all, "a newer tilec made it");
    if (!set_journal(all, on_network ? "PRAGMA journal_mode = DELETE" : "PRAGMA journal_mode = WAL")) return false;
    return format == FORMAT ||
           (execute(all, "BEGIN IMMEDIATE") && execute(all, schema) && execute(all, "PRAGMA user_version = 1; COMMIT"));
}

Measurements *measurements_open(Arena *arena, DiagSink *sink, const char *path) {
    Measurements *all = NEW(arena, Measurements);
    *all = (Measurements){.sink = sink, .path = path ? path : "HOST.tuning"};
    if (!path) return problem(all, "HOME is not set"), NULL;
    make_folders_of(arena, path);
    int code =
        sqlite3_open_v2(path, &all->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    bool ok = code == SQLITE_OK ? prepare(all, is_on_network(arena, path)) : refused(all);
    if (ok) return all;
    measurements_close(all);
    return NULL;
}

void measurements_close(Measurements *all) {
    if (all) sqlite3_close(all->database);
}

// ---- one measurement ----

static void bind_text(sqlite3_stmt *query, int at, const char *text) {
    sqlite3_bind_text(query, at, text ? text : "", -1, SQLITE_STATIC);
}

static void bind_key(sqlite3_stmt *query, Arena *arena, const RecordEntry *e) {
    const char *texts[KEYS] = {e->kernel,
                               e->text,
                               e->target,
                               e->device,
                               record_values_text(arena, &e->shape),
                               record_values_text(arena, &e->tuned),
                               e->driver,
                               e->clocks,
                               e->artefact,
                               e->method};
    for (int i = 0; i < KEYS; i++) bind_text(query, i + 1, texts[i]);
}

static const char *column(sqlite3_stmt *query, Arena *arena, int at) {
    const char *text = (const char *)sqlite3_column_text(query, at);
    return text ? arena_strdup(arena, text) : NULL;
}

bool measurements_find(Measurements *all, Arena *arena, RecordEntry *out) {
    static const char text[] =
        "SELECT us, us_low, us_high FROM measurements WHERE (" KEY ") = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(all->database, text, -1, &query, NULL) != SQLITE_OK) return refused(all);
    bind_key(query, arena, out);
    bool found = sqlite3_step(query) == SQLITE_ROW;
    if (found) {
        out->us = sqlite3_column_double(query, 0);
        out->low = sqlite3_column_double(query, 1);
        out->high = sqlite3_column_double(query, 2);
    }
    sqlite3_finalize(query);
    return found;
}

// `at`: seconds since 1970, an expression.
static bool add(Measurements *all, Arena *arena, const RecordEntry *one, const char *at) {
    const char *text = arena_printf(arena,
                                    "INSERT INTO measurements (" KEY ", " OTHERS ") VALUES "
                                    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, %s)" LATER,
                                    at);
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(all->database, text, -1, &query, NULL) != SQLITE_OK) return refused(all);
    const double times[] = {one->us, one->low, one->high};
    bind_key(query, arena, one);
    for (int i = 0; i < 3; i++) sqlite3_bind_double(query, KEYS + 1 + i, times[i]);
    bind_text(query, KEYS + 4, one->tilec);
    bool ok = sqlite3_step(query) == SQLITE_DONE;
    sqlite3_finalize(query);
    return ok || refused(all);
}

bool measurements_add(Measurements *all, Arena *arena, const RecordEntry *one) {
    return add(all, arena, one, "unixepoch()");
}

// ---- other records ----

static bool merge_text(Measurements *all, Arena *arena, const char *path, const FileText *file, int64_t *count) {
    const char *text = file->text;
    for (int number = 1; *text; number++) {
        size_t length = strcspn(text, "\n");
        RecordEntry one = {0};
        const char *why = length ? record_entry_read(arena, text, length, &one) : NULL;
        if (why) diag(all->sink, (Span){0}, T_BAD_RECORD, path, number, why);
        if (length && !why && !add(all, arena, &one, "0"))
            return false;   // a text does not say when: what is here stays
        *count += length && !why;
        text += length + (text[length] == '\n');
    }
    return true;
}

static bool attach(Measurements *all, const char *path) {
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(all->database, "ATTACH ? AS other", -1, &query, NULL) != SQLITE_OK) return refused(all);
    bind_text(query, 1, path);
    bool ok = sqlite3_step(query) == SQLITE_DONE;
    sqlite3_finalize(query);
    return ok || refused(all);
}

static bool merge_database(Measurements *all, const char *path, int64_t *count) {
    int format, there = 0;
    if (!attach(all, path)) return false;
    bool ok = read_number(all, "PRAGMA other.user_version", &format) &&
              (format == FORMAT || problem(all, "the other one is no tuning record, or a newer tilec made it")) &&
              read_number(all, "SELECT count(*) FROM other.measurements", &there) &&
              execute(all, "INSERT INTO main.measurements SELECT * FROM other.measurements WHERE true" LATER);
    *count = there;
    return execute(all, "DETACH other") && ok;
}

bool measurements_merge(Measurements *all, Arena *arena, const char *path, int64_t *count) {
    static const char magic[] = "SQLite format 3";
    FileText file;
    *count = 0;
    if (!file_read(arena, all->sink, path, 0, &file)) return false;
    if (file.length >= sizeof magic && memcmp(file.text, magic, sizeof magic) == 0)
        return merge_database(all, path, count);
    return execute(all, "BEGIN IMMEDIATE") && merge_text(all, arena, path, &file, count) && execute(all, "COMMIT");
}

// ---- as text ----

// "K = 4096, M = 4096". False: it is damaged.
static bool values_of(Arena *arena, const char *text, RecordValues *out) {
    static const char equals[] = " = ", comma[] = ", ";
    while (*text) {
        const char *number = strstr(text, equals);
        if (!number || number == text) return false;
        char *end;
        RecordValue value = {arena_strndup(arena, text, (size_t)(number - text)),
                             strtoll(number + strlen(equals), &end, 10)};
        bool ends = end > number + strlen(equals) && (!*end || strncmp(end, comma, strlen(comma)) == 0);
        if (!ends) return false;
        vec_push(arena, out, value);
        text = *end ? end + strlen(comma) : end;
    }
    return true;
}

// False: it is damaged, though SQLite reads it.
static bool entry_of(sqlite3_stmt *row, Arena *arena, RecordEntry *out) {
    const char *texts[KEYS];
    RecordValues shape = {0}, tuned = {0};
    for (int i = 0; i < KEYS; i++)
        if (!(texts[i] = column(row, arena, i))) return false;
    if (!values_of(arena, texts[4], &shape) || !values_of(arena, texts[5], &tuned)) return false;
    *out = (RecordEntry){.kernel = texts[0],
                         .text = texts[1],
                         .target = texts[2],
                         .device = texts[3],
                         .shape = shape,
                         .tuned = tuned,
                         .driver = texts[6],
                         .clocks = texts[7],
                         .artefact = texts[8],
                         .method = texts[9],
                         .us = sqlite3_column_double(row, KEYS),
                         .low = sqlite3_column_double(row, KEYS + 1),
                         .high = sqlite3_column_double(row, KEYS + 2),
                         .tilec = column(row, arena, KEYS + 3)};
    return out->tilec != NULL;
}

bool measurements_export(Measurements *all, Arena *arena, StrBuf *out) {
    static const char text[] = "SELECT " KEY ", us, us_low, us_high, tilec FROM measurements ORDER BY " KEY;
    sqlite3_stmt *rows;
    int code;
    if (sqlite3_prepare_v2(all->database, text, -1, &rows, NULL) != SQLITE_OK) return refused(all);
    for (int number = 1; (code = sqlite3_step(rows)) == SQLITE_ROW; number++) {
        RecordEntry entry;
        if (entry_of(rows, arena, &entry)) record_entry_write(&entry, out);
        else diag(all->sink, (Span){0}, T_BAD_RECORD, all->path, number, "the database is damaged");
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE || refused(all);
}
