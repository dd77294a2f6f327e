// Artefacts: the bytes of a cubin, or a plan in JSON, which an ELF file is made around; then all queries and launches
// against a driver without a device (tests/fake_cuda).
#include "tests/fake_cuda/artefact.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/launches.h"
#include <stdlib.h>

// The file of artefact.h with another plan, its last section.
static const void *around(Arena *arena, const uint8_t *plan, size_t size, size_t *total) {
    size_t known;
    const uint8_t *file = artefact_bytes(&known);
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, file, sizeof header);
    size_t at = header.e_shoff + 2 * sizeof section;
    memcpy(&section, file + at, sizeof section);
    section.sh_size = size;
    uint8_t *bytes = arena_alloc(arena, section.sh_offset + size);
    memcpy(bytes, file, section.sh_offset);
    memcpy(bytes + at, &section, sizeof section);
    memcpy(bytes + section.sh_offset, plan, size);
    *total = section.sh_offset + size;
    return bytes;
}

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    size_t total = size;
    const void *bytes = size && data[0] == '{' ? around(arena, data, size, &total) : data;
    TilecContext *context = NULL;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    if (tilec_context_create(NULL, &context) != TILEC_OK) abort();
    TilecStatus status = tilec_artefact_open(context, bytes, total, &artefact, &diagnostics);
    if (status == TILEC_ERROR_INTERNAL) abort();
    tilec_diagnostics_destroy(diagnostics);
    if (artefact) query_all(artefact), launch_all(artefact, total);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
}
