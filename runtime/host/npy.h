// NumPy's .npy files: one dense tensor in C order, little endian.
//
// Types without a NumPy name are stored as opaque bytes of their width, as ml_dtypes does: bf16 as '<V2' ('<u2' is read
// too), e4m3 and e5m2 as '|V1' ('|u1' is read too). Files of f32 or f64 are rounded to the type of the parameter.
#pragma once
#include "runtime/plan/scalar.h"
#include "support/files.h"

typedef struct Tensor {   // dense, row-major
    Type type;
    int rank;
    int64_t shape[LAYOUT_MAX_RANK];
    void *data;
    size_t bytes;
} Tensor;

int64_t tensor_elements(const Tensor *tensor);

// Reads a file as a tensor of `type`. False: reported.
bool npy_read(Arena *arena, DiagSink *sink, const char *path, Type type, Tensor *out);
// As npy_read, from memory. NULL: success; else the error.
const char *npy_parse(Arena *arena, const uint8_t *bytes, size_t length, Type type, Tensor *out);
bool npy_write(Arena *arena, DiagSink *sink, const char *path, const Tensor *tensor);
void npy_format(const Tensor *tensor, StrBuf *out);
