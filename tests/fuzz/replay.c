// main without libFuzzer: runs a fuzzer on files, those in tests/fuzz/inputs that once were findings.
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <stdlib.h>

static bool replay(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return false;
    size_t size = (size_t)ftell(file);
    uint8_t *bytes = malloc(size + 1);
    rewind(file);
    bool read = fread(bytes, 1, size, file) == size;
    fclose(file);
    if (read) LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return read;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        printf("%s\n", argv[i]);
        fflush(stdout);
        if (!replay(argv[i])) return perror(argv[i]), 1;
    }
    return 0;
}
