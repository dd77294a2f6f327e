// DLPack's structure (dlpack.h), whose layout is a promise to all that exchange tensors; and its numbers.
#pragma once
#include <stdint.h>

struct DLTensor {
    void *data;
    struct {
        int32_t kind, index;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *shape, *strides;   // strides NULL: dense
    uint64_t byte_offset;
};

enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6, DL_E4M3FN = 10, DL_E5M2 = 12 };   // DLDataTypeCode
enum { DL_CPU = 1, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED = 13 };                               // DLDeviceType
