// Scalar types from types.def.
#include "ir/ir.h"
#include <string.h>

typedef struct TypeRow {
    const char *text;
    int bits;
    TypeKind kind;
    const char *description;
} TypeRow;

static const TypeRow rows[] = {
#define TYPE(NAME, text, bits, kind, description) [TYPE_##NAME] = {text, bits, KIND_##kind, description},
#include "ir/types.def"
#undef TYPE
};

_Static_assert(sizeof rows / sizeof rows[0] == TYPE_COUNT, "a type without its row");

static bool type_valid(Type type) {
    return (int)type >= 0 && type < TYPE_COUNT;
}

const char *type_text(Type type) {
    return type_valid(type) ? rows[type].text : "<none>";
}

const char *type_description(Type type) {
    return type_valid(type) ? rows[type].description : "";
}

int type_bits(Type type) {
    return type_valid(type) ? rows[type].bits : 0;
}

int type_bytes(Type type) {
    int bits = type_bits(type);
    return bits < 8 ? 1 : bits / 8;
}

TypeKind type_kind(Type type) {
    return type_valid(type) ? rows[type].kind : KIND_OPAQUE;
}

Type type_named(const char *text) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (strcmp(rows[i].text, text) == 0) return (Type)i;
    return TYPE_NONE;
}

Type type_compute(Type type) {
    return type_is_float(type) && type_bits(type) < 32 ? TYPE_F32 : type;
}
