// Messages of the Language Server Protocol: JSON behind a header `Content-Length: BYTES`, one after the other.
#pragma once
#include "support/json.h"

typedef struct MessageInput {   // what came and was not taken yet
    int fd;
    char *bytes;
    size_t length, capacity;
} MessageInput;

typedef enum { INPUT_MESSAGE, INPUT_WAIT, INPUT_END } InputState;

// Reads once from the file descriptor. INPUT_END: it is closed, or there is no memory.
InputState input_read(MessageInput *input);
// Takes the next message. INPUT_WAIT: it is not whole yet; INPUT_END: what came is no message. *out NULL: no JSON.
InputState input_take(MessageInput *input, Arena *arena, const Json **out);
void input_free(MessageInput *input);

// False: there is no reader.
bool message_put(const StrBuf *json);
