#include "runtime/plan/scalar.h"
#include "emulator/values.h"

static Word word_of(Scalar value) {
    Word word;
    if (type_is_float(value.type)) word.f = value.real;
    else word.i = value.integer;
    return word;
}

static Scalar scalar_of(Type type, Word word) {
    return type_is_float(type) ? (Scalar){.type = type, .real = word.f} : (Scalar){.type = type, .integer = word.i};
}

Scalar scalar_integer(Type type, int64_t value) {
    return (Scalar){.type = type, .integer = type == TYPE_I64 ? value : int_wrap(type, value)};
}

Scalar scalar_real(Type type, double value) {
    return (Scalar){.type = type, .real = float_round(type, value)};
}

Scalar scalar_convert(Type type, Scalar from) {
    return type == from.type ? from : scalar_of(type, word_convert(type, from.type, word_of(from)));
}

double scalar_double(Scalar value) {
    return scalar_convert(TYPE_F64, value).real;
}

bool scalar_truth(Scalar value) {
    return type_is_float(value.type) ? value.real != 0 : value.integer != 0;
}

void scalar_store(Scalar value, void *memory) {
    element_store(value.type, memory, word_of(value));
}

Scalar scalar_load(Type type, const void *memory) {
    return scalar_of(type, element_load(type, memory));
}
