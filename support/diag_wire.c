// Diagnostics as bytes, for another process or a later one: all that rendering needs, so with the sources they name.
#include "support/diag_impl.h"
#include "support/wire.h"
#include <string.h>

typedef struct Sent {
    int *files;   // the receiver's index of each source
    int64_t count;
} Sent;

static void span_fields(Wire *wire, const Sent *sent, Span *span) {
    int *fields[] = {&span->file, &span->line, &span->column, &span->end_line, &span->end_column};
    for (int i = 0; i < COUNT_OF(fields); i++) {
        int64_t value = *fields[i];
        wire_number(wire, &value);
        wire->broken |= value < 0 || value > INT32_MAX;
        *fields[i] = wire->broken ? 0 : (int)value;
    }
    if (wire->out || !span->line) return;
    wire->broken |= span->file >= sent->count;
    if (!wire->broken) span->file = sent->files[span->file];
}

static int64_t label_fields(Wire *wire, const Sent *sent, DiagLabel *given, int64_t count, DiagLabel **out) {
    *out = wire_list(wire, given, &count, sizeof **out);
    for (int64_t i = 0; i < count; i++) {
        wire_text(wire, &(*out)[i].text);
        span_fields(wire, sent, &(*out)[i].span);
        wire->broken |= !(*out)[i].text;
    }
    return count;
}

static void diag_fields(Wire *wire, const Sent *sent, Diag *d) {
    int64_t code = wire->out ? (int64_t)d->row->code : 0, notes = d->notes.count;
    wire_number(wire, &code);
    wire_text(wire, &d->message);
    span_fields(wire, sent, &d->span);
    DiagLabel *label, *fix;
    int64_t labels = label_fields(wire, sent, d->labels.items, d->labels.count, &label);
    int64_t fixes = label_fields(wire, sent, d->fixes.items, d->fixes.count, &fix);
    const char **note = wire_list(wire, d->notes.items, &notes, sizeof *note);
    for (int64_t i = 0; i < notes; i++) {
        wire_text(wire, &note[i]);
        wire->broken |= !note[i];
    }
    if (wire->out) return;
    d->row = code == (int)code ? diag_row((int)code) : NULL;
    wire->broken |= !d->row || !d->message;
    for (int64_t i = 0; i < labels && !wire->broken; i++) vec_push(d->arena, &d->labels, label[i]);
    for (int64_t i = 0; i < fixes && !wire->broken; i++) vec_push(d->arena, &d->fixes, fix[i]);
    for (int64_t i = 0; i < notes && !wire->broken; i++) vec_push(d->arena, &d->notes, note[i]);
}

void diag_write(const DiagSink *sink, StrBuf *out) {
    Wire wire = wire_to(out);
    int64_t count = sink->diags.count, sources = count ? sink->sources.count : 0;
    int64_t unlisted = sink->errors - sink->repeated - diag_listed_errors(sink);
    wire_number(&wire, &sources);
    for (int64_t i = 0; i < sources; i++) {
        Source source = sink->sources.items[i];
        wire_text(&wire, &source.name);
        wire_bytes(&wire, (const void **)&source.text, &source.length);
    }
    wire_number(&wire, &count);
    for (int64_t i = 0; i < count; i++) {
        Diag d = *sink->diags.items[i];
        diag_fields(&wire, NULL, &d);
    }
    wire_number(&wire, &unlisted);
}

// A source that the sink has already: so the same diagnostic of another compile is recognized.
static int file_of(DiagSink *sink, const Source *source) {
    for (int i = 0; i < sink->sources.count; i++) {
        const Source *known = &sink->sources.items[i];
        if (known->length == source->length && !strcmp(known->name, source->name) &&
            !memcmp(known->text, source->text, source->length))
            return i;
    }
    return diag_add_source(sink, source->name, source->text, source->length);
}

static void read_sources(Wire *wire, DiagSink *sink, Sent *sent) {
    Source *sources = wire_list(wire, NULL, &sent->count, sizeof *sources);
    sent->files = NEW_ARRAY(sink->arena, int, sent->count + 1);
    for (int64_t i = 0; i < sent->count; i++) {
        wire_text(wire, &sources[i].name);
        wire_bytes(wire, (const void **)&sources[i].text, &sources[i].length);
        wire->broken |= !sources[i].name || !sources[i].text;
        if (!wire->broken) sent->files[i] = file_of(sink, &sources[i]);
    }
}

bool diag_read(DiagSink *sink, const char *data, size_t size) {
    Wire wire = wire_from(sink->arena, arena_copy(sink->arena, data, size), size);
    Sent sent = {0};
    int64_t count = 0, unlisted = 0;
    read_sources(&wire, sink, &sent);
    Diag *diags = wire_list(&wire, NULL, &count, sizeof *diags);
    for (int64_t i = 0; i < count; i++) {
        diags[i].arena = sink->arena;
        diag_fields(&wire, &sent, &diags[i]);
    }
    wire_number(&wire, &unlisted);
    if (!wire_whole(&wire) || unlisted < 0 || unlisted > INT32_MAX) return false;
    for (int64_t i = 0; i < count; i++) diag_add(sink, &diags[i]);
    sink->errors += (int)unlisted;
    return true;
}
