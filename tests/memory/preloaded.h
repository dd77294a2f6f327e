#pragma once
#include <stdatomic.h>

typedef struct Refusal {
    atomic_long requests;
    long first, last;   // of the requests that are refused, from 1 on
} Refusal;
