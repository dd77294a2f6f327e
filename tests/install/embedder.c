// The smallest embedder: the header stands alone, the library links, and an internal name of tilec is free to use.
#include <stdio.h>
#include <tilec/tilec.h>

void arena_free(void) {
}

int main(void) {
    arena_free();
    printf("tilec %s\n", tilec_version());
    return tilec_version()[0] ? 0 : 1;
}
