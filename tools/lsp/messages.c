#include "tools/lsp/messages.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, MOST_HEADER = 1 << 12, MOST_BYTES = 1 << 28 };

InputState input_read(MessageInput *input) {
    if (input->capacity - input->length < READ_BYTES) {
        size_t capacity = 2 * input->capacity + READ_BYTES;
        char *bytes = realloc(input->bytes, capacity);
        if (!bytes) return INPUT_END;
        input->bytes = bytes;
        input->capacity = capacity;
    }
    ssize_t got = read(input->fd, input->bytes + input->length, READ_BYTES);
    if (got < 0 && errno == EINTR) return INPUT_WAIT;
    if (got <= 0) return INPUT_END;
    input->length += (size_t)got;
    return INPUT_MESSAGE;
}

// The length of the header with its empty line; 0: it is not whole. *size: -1 where the header names no length.
static size_t read_header(const MessageInput *input, long long *size) {
    static const char name[] = "Content-Length:";
    const char *end = input->length ? memmem(input->bytes, input->length, "\r\n\r\n", 4) : NULL;
    if (!end) return 0;
    *size = -1;
    for (const char *line = input->bytes; line < end;
         line = (const char *)memchr(line, '\n', (size_t)(end + 4 - line)) + 1)
        if (strncasecmp(line, name, sizeof name - 1) == 0) *size = strtoll(line + sizeof name - 1, NULL, 10);
    return (size_t)(end - input->bytes) + 4;
}

InputState input_take(MessageInput *input, Arena *arena, const Json **out) {
    long long size = 0;
    const char *why;
    size_t header = read_header(input, &size);
    if (!header) return input->length > MOST_HEADER ? INPUT_END : INPUT_WAIT;
    if (size < 0 || size > MOST_BYTES) return INPUT_END;
    size_t whole = header + (size_t)size;
    if (input->length < whole) return INPUT_WAIT;
    *out = json_read(arena, arena_strndup(arena, input->bytes + header, (size_t)size), (size_t)size, &why);
    memmove(input->bytes, input->bytes + whole, input->length - whole);
    input->length -= whole;
    return INPUT_MESSAGE;
}

void input_free(MessageInput *input) {
    free(input->bytes);
    *input = (MessageInput){.fd = input->fd};
}

bool message_put(const StrBuf *json) {
    printf("Content-Length: %zu\r\n\r\n", json->length);
    fwrite(sb_text(json), 1, json->length, stdout);
    return fflush(stdout) == 0;
}
