// The format (NEP 1): magic "\x93NUMPY", version, length of the header, a Python dictionary as text, the elements.
#include "runtime/host/npy.h"
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "\x93NUMPY";

enum { MAGIC_BYTES = 6, ALIGN = 64 };

typedef struct Descr {
    Type type;
    const char *written, *also;   // `also`: a second spelling for reading
} Descr;

static const Descr descrs[] = {
    {TYPE_BOOL, "|b1", NULL}, {TYPE_I8, "|i1", NULL},    {TYPE_I16, "<i2", NULL},   {TYPE_I32, "<i4", NULL},
    {TYPE_I64, "<i8", NULL},  {TYPE_U8, "|u1", NULL},    {TYPE_U16, "<u2", NULL},   {TYPE_U32, "<u4", NULL},
    {TYPE_U64, "<u8", NULL},  {TYPE_F16, "<f2", NULL},   {TYPE_BF16, "<V2", "<u2"}, {TYPE_F32, "<f4", NULL},
    {TYPE_F64, "<f8", NULL},  {TYPE_E4M3, "|V1", "|u1"}, {TYPE_E5M2, "|V1", "|u1"},
};

enum { DESCRS = sizeof descrs / sizeof descrs[0] };

int64_t tensor_elements(const Tensor *tensor) {
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++) count *= tensor->shape[d];
    return count;
}

static const Descr *descr_of(Type type) {
    for (int i = 0; i < DESCRS; i++)
        if (descrs[i].type == type) return &descrs[i];
    return NULL;
}

// The first character of the value of 'key' in the header's dictionary; NULL: no such key.
static const char *find_key(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static const char *parse_shape(const char *text, Tensor *out) {
    if (*text++ != '(') return "its shape is damaged";
    int64_t elements = 1;
    for (;;) {
        char *end;
        while (*text == ' ' || *text == ',') text++;
        if (*text == ')') return NULL;
        int64_t extent = strtoll(text, &end, 10);
        if (end == text || extent < 0) return "its shape is damaged";
        if (out->rank == LAYOUT_MAX_RANK) return "it has too many dims";
        if (__builtin_mul_overflow(elements, extent ? extent : 1, &elements)) return "its shape is too large";
        out->shape[out->rank++] = extent;
        text = end;
    }
}

// The type of the file's elements: `wanted` if its descr matches.
static const char *parse_descr(Arena *arena, const char *text, Type wanted, Type *type) {
    char name[16] = "";
    if (*text == '\'' || *text == '"') text++;
    for (size_t i = 0; i + 1 < sizeof name && *text && *text != '\'' && *text != '"'; i++) name[i] = *text++;
    if (name[0] == '>') return "its elements are big endian";
    const Descr *want = descr_of(wanted);
    if (name[1] == 'V' && want) name[0] = want->written[0];   // numpy.save writes |V2, ml_dtypes <V2
    if (want && (strcmp(name, want->written) == 0 || (want->also && strcmp(name, want->also) == 0))) {
        *type = wanted;
        return NULL;
    }
    for (int i = 0; i < DESCRS; i++) {
        if (strcmp(name, descrs[i].written) != 0) continue;
        *type = descrs[i].type;
        bool is_rounded = type_is_float(wanted) && (*type == TYPE_F32 || *type == TYPE_F64);
        if (is_rounded) return NULL;
        break;
    }
    return arena_printf(arena, "its elements are '%s'; %s is wanted", name, type_text(wanted));
}

// Rounds a tensor of f32 or f64 to another float type.
static void convert_elements(Arena *arena, Tensor *tensor, Type type) {
    int64_t count = tensor_elements(tensor);
    size_t from = (size_t)type_bytes(tensor->type), to = (size_t)type_bytes(type);
    uint8_t *data = arena_alloc(arena, to * (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        Scalar value = scalar_load(tensor->type, (uint8_t *)tensor->data + from * (size_t)i);
        scalar_store(scalar_convert(type, value), data + to * (size_t)i);
    }
    tensor->type = type;
    tensor->data = data;
    tensor->bytes = to * (size_t)count;
}

const char *npy_parse(Arena *arena, const uint8_t *bytes, size_t length, Type type, Tensor *out) {
    *out = (Tensor){0};
    if (length < 10 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0) return "it does not begin as one";
    bool wide = bytes[6] >= 2;   // versions 2 and 3 have a 4-byte length
    size_t start = wide ? 12 : 10, header = bytes[8] | (size_t)bytes[9] << 8;
    if (wide && length >= start) header |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length < start || header > length - start) return "its header is cut off";
    const char *text = arena_strndup(arena, (const char *)bytes + start, header);
    const char *descr = find_key(text, "'descr'"), *shape = find_key(text, "'shape'");
    const char *fortran = find_key(text, "'fortran_order'");
    if (!descr || !shape || !fortran) return "its header is damaged";
    const char *why = parse_descr(arena, descr, type, &out->type);
    if (!why) why = parse_shape(shape, out);
    if (why) return why;
    if (strncmp(fortran, "True", 4) == 0 && out->rank > 1) return "it is in Fortran order";
    start += header;
    out->bytes = (size_t)tensor_elements(out) * (size_t)type_bytes(out->type);
    if (tensor_elements(out) > (int64_t)length || out->bytes > length - start) return "its data are cut off";
    out->data = arena_copy(arena, bytes + start, out->bytes);
    if (out->type != type) convert_elements(arena, out, type);
    return NULL;
}

bool npy_read(Arena *arena, DiagSink *sink, const char *path, Type type, Tensor *out) {
    FileText file;
    if (!file_read(arena, sink, path, 0, &file)) return false;
    const char *why = npy_parse(arena, (const uint8_t *)file.text, file.length, type, out);
    if (why) diag(sink, (Span){0}, T_BAD_NPY, path, why);
    return !why;
}

void npy_format(const Tensor *tensor, StrBuf *out) {
    StrBuf header;
    const Descr *descr = descr_of(tensor->type);
    sb_init(&header, out->arena);
    sb_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr ? descr->written : "|V1");
    for (int d = 0; d < tensor->rank; d++) sb_printf(&header, "%lld, ", (long long)tensor->shape[d]);
    sb_str(&header, "), }");
    while ((10 + header.length + 1) % ALIGN != 0) sb_char(&header, ' ');
    sb_char(&header, '\n');
    sb_bytes(out, MAGIC, MAGIC_BYTES);
    sb_bytes(out, "\1\0", 2);
    sb_char(out, (char)(header.length & 0xFF));
    sb_char(out, (char)(header.length >> 8));
    sb_bytes(out, header.text, header.length);
    sb_bytes(out, tensor->data, tensor->bytes);
}

bool npy_write(Arena *arena, DiagSink *sink, const char *path, const Tensor *tensor) {
    StrBuf out;
    sb_init(&out, arena);
    npy_format(tensor, &out);
    return file_write(arena, sink, path, out.text, out.length);
}
