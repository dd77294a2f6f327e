// A message is a list of fields: numbers of 8 bytes, and bytes behind their number, with a zero after them. The same
// function writes and reads the fields of a structure, so the two sides cannot differ.
#include "runtime/worker/message.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

typedef struct Wire {
    Arena *arena;
    StrBuf *out;      // NULL: it is read
    const char *at;   // what is still to be read
    size_t left;
    bool broken;
} Wire;

static const char *take(Wire *wire, uint64_t size) {
    const char *at = wire->at;
    if (wire->broken || size > wire->left) {
        wire->broken = true;
        return NULL;
    }
    wire->at += size;
    wire->left -= size;
    return at;
}

static void number(Wire *wire, int64_t *value) {
    if (wire->out) {
        sb_bytes(wire->out, (const char *)value, sizeof *value);
        return;
    }
    const char *from = take(wire, sizeof *value);
    if (from) memcpy(value, from, sizeof *value);
    else *value = 0;
}

static void bytes(Wire *wire, const void **data, size_t *size) {
    int64_t length = *data ? (int64_t)*size : -1;
    number(wire, &length);
    if (wire->out) {
        if (*data) sb_bytes(wire->out, *data, *size), sb_char(wire->out, 0);
        return;
    }
    const char *from = length >= 0 ? take(wire, (uint64_t)length + 1) : NULL;
    if (from && from[length]) wire->broken = true;
    *data = wire->broken ? NULL : from;
    *size = *data ? (size_t)length : 0;
}

static void text(Wire *wire, const char **value) {
    const void *data = *value;
    size_t size = data ? strlen(data) : 0;
    bytes(wire, &data, &size);
    *value = data;
}

static void *list(Wire *wire, const void *items, int64_t *count, size_t item) {
    number(wire, count);
    if (wire->out) return (void *)items;
    if (*count < 0 || (uint64_t)*count > wire->left / sizeof *count) wire->broken = true;
    if (wire->broken) *count = 0;
    return arena_alloc(wire->arena, item * (size_t)(*count + 1));
}

static void request_fields(Wire *wire, CompileRequest *r) {
    const char **texts[] = {&r->name,  &r->folder, &r->target,    &r->only,
                            &r->ptxas, &r->record, &r->repro_dir, &r->import_root};
    int64_t *numbers[] = {&r->optimize, &r->lines, &r->assemble, &r->memory_limit};
    size_t set = sizeof *r->processors;
    bytes(wire, (const void **)&r->text, &r->length);
    bytes(wire, (const void **)&r->processors, &set);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) text(wire, texts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) number(wire, numbers[i]);
    TilecDefine *defines = list(wire, r->defines, &r->define_count, sizeof *defines);
    r->defines = defines;
    for (int64_t i = 0; i < r->define_count; i++) {
        TilecDefine define = wire->out ? defines[i] : (TilecDefine){0};
        text(wire, &define.name);
        text(wire, &define.value);
        if (!wire->out) defines[i] = define;
        wire->broken |= !define.name || !define.value;
    }
    wire->broken |= !r->text || !r->name || !r->folder || !r->processors || set != sizeof *r->processors;
}

static void diagnostic_fields(Wire *wire, TilecDiagnostic *d) {
    int64_t values[] = {d->code, d->severity, d->line, d->column, d->end_line, d->end_column};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) number(wire, &values[i]);
    text(wire, &d->file);
    text(wire, &d->message);
    text(wire, &d->remedy);
    d->code = (int)values[0];
    d->severity = (TilecSeverity)values[1];
    d->line = (int)values[2];
    d->column = (int)values[3];
    d->end_line = (int)values[4];
    d->end_column = (int)values[5];
    wire->broken |= !d->file || !d->message || !d->remedy;
}

static void reply_fields(Wire *wire, CompileReply *r) {
    number(wire, &r->status);
    text(wire, &r->ptx);
    text(wire, &r->manifest);
    bytes(wire, &r->cubin, &r->cubin_size);
    text(wire, &r->text);
    text(wire, &r->json);
    TilecDiagnostic *diagnostics = list(wire, r->diagnostics, &r->count, sizeof *diagnostics);
    r->diagnostics = diagnostics;
    for (int64_t i = 0; i < r->count; i++) {
        TilecDiagnostic d = wire->out ? diagnostics[i] : (TilecDiagnostic){0};
        diagnostic_fields(wire, &d);
        if (!wire->out) diagnostics[i] = d;
    }
    wire->broken |= r->status == TILEC_OK && (!r->ptx || !r->manifest);
    wire->broken |= r->count > 0 && (!r->text || !r->json);
}

void request_write(const CompileRequest *request, StrBuf *out) {
    CompileRequest copy = *request;
    Wire wire = {.out = out};
    request_fields(&wire, &copy);
}

void reply_write(const CompileReply *reply, StrBuf *out) {
    CompileReply copy = *reply;
    Wire wire = {.out = out};
    reply_fields(&wire, &copy);
}

bool request_read(Arena *arena, const char *data, size_t size, CompileRequest *out) {
    Wire wire = {.arena = arena, .at = data, .left = size};
    *out = (CompileRequest){0};
    request_fields(&wire, out);
    return !wire.broken && wire.left == 0;
}

bool reply_read(Arena *arena, const char *data, size_t size, CompileReply *out) {
    Wire wire = {.arena = arena, .at = data, .left = size};
    *out = (CompileReply){0};
    reply_fields(&wire, out);
    return !wire.broken && wire.left == 0;
}

// ---- sockets ----

typedef struct Head {
    char version[24];
    uint64_t size;
} Head;

static const Head head = {.version = "tilec " TILEC_VERSION "\n"};

int64_t milliseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) return false;
        if (sent > 0) data += sent, size -= (size_t)sent;
    }
    return true;
}

bool message_send(int fd, const char *data, size_t size) {
    Head first = head;
    first.size = size;
    return send_all(fd, (const char *)&first, sizeof first) && send_all(fd, data, size);
}

// How many milliseconds to wait at most; below 0: for ever.
static int64_t next_wait(const MessageWait *until) {
    enum { ASK_EVERY = 20, MOST = 1 << 30 };
    int64_t wait = until->deadline ? until->deadline - milliseconds_now() : -1;
    int64_t most = until->cancelled ? ASK_EVERY : until->deadline ? MOST : -1;
    return wait < 0 || wait > most ? most : wait;
}

static MessageEnd receive_all(int fd, const MessageWait *until, char *data, size_t size) {
    while (size) {
        if (until->deadline && milliseconds_now() >= until->deadline) return MESSAGE_LATE;
        if (until->cancelled && until->cancelled(until->cancelled_user)) return MESSAGE_CANCELLED;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int count = poll(&ready, 1, (int)next_wait(until));
        if (count == 0 || (count < 0 && errno == EINTR)) continue;
        ssize_t got = recv(fd, data, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return MESSAGE_CLOSED;
        data += got;
        size -= (size_t)got;
    }
    return MESSAGE_COMPLETE;
}

MessageEnd message_receive(Arena *arena, int fd, const MessageWait *until, const char **data, size_t *size) {
    Head first;
    MessageEnd end = receive_all(fd, until, (char *)&first, sizeof first);
    if (end != MESSAGE_COMPLETE) return end;
    if (memcmp(first.version, head.version, sizeof head.version) != 0) return MESSAGE_OTHER_VERSION;
    char *out = arena_alloc(arena, first.size);
    *data = out;
    *size = first.size;
    return receive_all(fd, until, out, first.size);
}
