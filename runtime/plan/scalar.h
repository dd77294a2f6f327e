// One number of any scalar type: its value and its bits in memory.
#pragma once
#include "ir/ir.h"

typedef struct Scalar {
    Type type;
    int64_t integer;   // bool and integers (u64: its bits)
    double real;       // floats
} Scalar;

Scalar scalar_integer(Type type, int64_t value);
Scalar scalar_real(Type type, double value);     // rounds to the type
Scalar scalar_convert(Type type, Scalar from);   // as T(x) of the language: to an integer toward zero, saturating
double scalar_double(Scalar value);              // for comparison and printing
bool scalar_truth(Scalar value);

void scalar_store(Scalar value, void *memory);   // type_bytes(value.type) bytes, little endian
Scalar scalar_load(Type type, const void *memory);
