#include "runtime/worker/message.h"
#include "support/wire.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static TilecDefine *define_fields(Wire *wire, const TilecDefine *given, int64_t *count) {
    TilecDefine *defines = wire_list(wire, given, count, sizeof *defines);
    for (int64_t i = 0; i < *count; i++) {
        TilecDefine define = wire->out ? defines[i] : (TilecDefine){0};
        wire_text(wire, &define.name);
        wire_text(wire, &define.value);
        if (!wire->out) defines[i] = define;
        wire->broken |= !define.name || !define.value;
    }
    return defines;
}

static RecordValue *shape_fields(Wire *wire, const RecordValue *given, int64_t *count) {
    RecordValue *values = wire_list(wire, given, count, sizeof *values);
    for (int64_t i = 0; i < *count; i++) {
        RecordValue value = wire->out ? values[i] : (RecordValue){0};
        wire_text(wire, &value.name);
        wire_number(wire, &value.value);
        if (!wire->out) values[i] = value;
        wire->broken |= !value.name;
    }
    return values;
}

static void argument_fields(Wire *wire, SentArgument *a) {
    int64_t kind = a->arg.kind, type = a->arg.type, device = a->arg.device, rank = a->arg.rank;
    int64_t address = (int64_t)(intptr_t)a->arg.data, real;
    memcpy(&real, &a->arg.real, sizeof real);
    int64_t *numbers[] = {&kind, &type, &device, &rank, &address, &a->arg.integer, &real, &a->same};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) wire_number(wire, numbers[i]);
    for (int d = 0; d < TILEC_MAX_RANK; d++) wire_number(wire, &a->arg.shape[d]), wire_number(wire, &a->arg.strides[d]);
    wire_bytes(wire, &a->data, &a->size);
    a->arg.size = sizeof a->arg;
    a->arg.kind = (TilecArgKind)kind;
    a->arg.type = (TilecType)type;
    a->arg.device = (int)device;
    a->arg.rank = (int)rank;
    a->arg.data = (void *)(intptr_t)address;
    memcpy(&a->arg.real, &real, sizeof real);
}

static SentArgument *argument_list(Wire *wire, const SentArgument *given, int64_t *count) {
    SentArgument *args = wire_list(wire, given, count, sizeof *args);
    for (int64_t i = 0; i < *count; i++) {
        SentArgument arg = wire->out ? args[i] : (SentArgument){0};
        argument_fields(wire, &arg);
        wire->broken |= arg.same >= i;
        if (!wire->out) args[i] = arg;
    }
    return args;
}

static void emulation_fields(Wire *wire, Emulation *e) {
    wire_text(wire, &e->kernel);
    wire_number(wire, &e->seed);
    wire_number(wire, &e->max_steps);
    e->args = argument_list(wire, e->args, &e->count);
}

static void request_fields(Wire *wire, CompileRequest *r) {
    const char **texts[] = {&r->name,      &r->folder,      &r->target,      &r->only,    &r->ptxas,  &r->record,
                            &r->repro_dir, &r->import_root, &r->print_after, &r->layouts, &r->kernel, &r->independent};
    int64_t *numbers[] = {&r->optimize,   &r->lines,     &r->assemble,     &r->remarks,
                          &r->phases,     &r->for_shape, &r->memory_limit, &r->declarations,
                          &r->for_launch, &r->variants,  &r->pdl,          &r->multiprocessors};
    size_t set = sizeof *r->processors;
    wire_bytes(wire, (const void **)&r->text, &r->length);
    wire_bytes(wire, (const void **)&r->record_text, &r->record_length);
    wire_bytes(wire, (const void **)&r->processors, &set);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) wire_text(wire, texts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) wire_number(wire, numbers[i]);
    r->defines = define_fields(wire, r->defines, &r->define_count);
    emulation_fields(wire, &r->emulation);
    r->args = argument_list(wire, r->args, &r->arg_count);
    r->shape = shape_fields(wire, r->shape, &r->shape_count);
    wire->broken |= !r->text || !r->name || !r->folder || (r->record && !r->record_text);
    wire->broken |= r->processors && set != sizeof *r->processors;
}

static void output_fields(Wire *wire, CompileReply *r) {
    SentOutput *outputs = wire_list(wire, r->outputs, &r->output_count, sizeof *outputs);
    r->outputs = outputs;
    for (int64_t i = 0; i < r->output_count; i++) {
        SentOutput output = wire->out ? outputs[i] : (SentOutput){0};
        wire_number(wire, &output.index);
        wire_bytes(wire, &output.data, &output.size);
        if (!wire->out) outputs[i] = output;
        wire->broken |= !output.data;
    }
}

static void reply_fields(Wire *wire, CompileReply *r) {
    wire_number(wire, &r->status);
    wire_text(wire, &r->ptx);
    wire_text(wire, &r->manifest);
    wire_text(wire, &r->listing);
    wire_text(wire, &r->layouts);
    wire_bytes(wire, &r->cubin, &r->cubin_size);
    wire_bytes(wire, (const void **)&r->diagnostics, &r->diagnostics_size);
    CompileImport *imports = wire_list(wire, r->imports, &r->import_count, sizeof *imports);
    r->imports = imports;
    for (int64_t i = 0; i < r->import_count; i++) {
        CompileImport import = wire->out ? imports[i] : (CompileImport){0};
        wire_text(wire, &import.path);
        wire_bytes(wire, (const void **)&import.text, &import.length);
        if (!wire->out) imports[i] = import;
        wire->broken |= !import.path || !import.text;
    }
    output_fields(wire, r);
    wire->broken |= r->status == TILEC_OK && (!r->ptx || !r->manifest);
}

void request_write(const CompileRequest *request, StrBuf *out) {
    CompileRequest copy = *request;
    Wire wire = wire_to(out);
    request_fields(&wire, &copy);
}

void reply_write(const CompileReply *reply, StrBuf *out) {
    CompileReply copy = *reply;
    Wire wire = wire_to(out);
    reply_fields(&wire, &copy);
}

bool request_read(Arena *arena, const char *data, size_t size, CompileRequest *out) {
    Wire wire = wire_from(arena, data, size);
    *out = (CompileRequest){0};
    request_fields(&wire, out);
    return wire_whole(&wire);
}

bool reply_read(Arena *arena, const char *data, size_t size, CompileReply *out) {
    Wire wire = wire_from(arena, data, size);
    *out = (CompileReply){0};
    reply_fields(&wire, out);
    return wire_whole(&wire);
}

bool reply_diagnostics(const CompileReply *reply, DiagSink *sink) {
    if (reply->diagnostics) return diag_read(sink, reply->diagnostics, reply->diagnostics_size);
    diag(sink, (Span){0}, T_OUT_OF_MEMORY);
    return reply->status == TILEC_ERROR_ENVIRONMENT;
}

// ---- sockets ----

typedef struct Head {
    char version[24];
    uint64_t kind, size;
} Head;

static const Head head = {.version = "tilec " TILEC_VERSION "\n"};

int64_t milliseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// How many milliseconds to wait at most; below 0: for ever.
static int64_t next_wait(const MessageWait *until) {
    enum { ASK_EVERY = 10, MOST = 1 << 30 };
    int64_t most = until->cancelled ? ASK_EVERY : until->deadline ? MOST : -1;
    int64_t wait = until->deadline ? until->deadline - milliseconds_now() : most;
    if (until->deadline && wait < 0) return 0;   // it came after end_of_wait had looked
    return wait < most ? wait : most;
}

// COMPLETE: nothing ends the wait yet.
static MessageEnd end_of_wait(const MessageWait *until) {
    if (until->deadline && milliseconds_now() >= until->deadline) return MESSAGE_LATE;
    bool cancelled = until->cancelled && until->cancelled(until->cancelled_user);
    return cancelled ? MESSAGE_CANCELLED : MESSAGE_COMPLETE;
}

// The buffer of a socket is small and its reader may be slow, so sending waits as receiving does.
static MessageEnd send_all(int fd, const MessageWait *until, const char *data, size_t size) {
    while (size) {
        MessageEnd end = end_of_wait(until);
        if (end != MESSAGE_COMPLETE) return end;
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        int count = poll(&ready, 1, (int)next_wait(until));
        if (count == 0 || (count < 0 && errno == EINTR)) continue;
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EINTR && errno != EAGAIN) return MESSAGE_CLOSED;
        if (sent > 0) data += sent, size -= (size_t)sent;
    }
    return MESSAGE_COMPLETE;
}

MessageEnd message_send(int fd, const MessageWait *until, MessageKind kind, const char *data, size_t size) {
    Head first = head;
    first.kind = kind;
    first.size = size;
    MessageEnd end = send_all(fd, until, (const char *)&first, sizeof first);
    return end == MESSAGE_COMPLETE ? send_all(fd, until, data, size) : end;
}

static MessageEnd receive_all(int fd, const MessageWait *until, char *data, size_t size) {
    while (size) {
        MessageEnd end = end_of_wait(until);
        if (end != MESSAGE_COMPLETE) return end;
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

MessageEnd message_receive(Arena *arena, int fd, const MessageWait *until, Message *message) {
    Head first;
    MessageEnd end = receive_all(fd, until, (char *)&first, sizeof first);
    if (end != MESSAGE_COMPLETE) return end;
    if (memcmp(first.version, head.version, sizeof head.version) != 0) return MESSAGE_OTHER_VERSION;
    char *out = arena_alloc(arena, first.size + 1);
    *message = (Message){(MessageKind)first.kind, out, first.size};
    return receive_all(fd, until, out, first.size);
}
