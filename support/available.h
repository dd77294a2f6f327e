// How much memory the process can still have. Linux promises more than there is, and ends a process that uses it.
#pragma once
#include <stdint.h>

int64_t memory_available(void);   // bytes; INT64_MAX: nothing is known of a limit
