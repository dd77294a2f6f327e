// Results of approximate f32 operations within their promise (approximate.c explains it).
//
// In: a seed, an operation, its operands, the exact result. Out: an f32.
#pragma once
#include "emulator/values.h"

bool op_is_approximate(OpId op);   // among the functions of one operand
double approximate(uint64_t seed, OpId op, double x, double exact);
double approximate_quotient(uint64_t seed, double a, double b);
