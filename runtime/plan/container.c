// Adding a section to a cubin without moving a byte of it.
//
// The header of an ELF file points to the table of section headers, which may be anywhere in the file. We append the
// plan, the section names plus one, and a new table with one more row, and update the pointer. Offsets inside the cubin
// stay valid; drivers and tools ignore the unknown section.
//
//     | ELF header | cubin's sections ... | old names | old table | plan | names + ".tilec.plan" | new table |
//                                                                                                  ^ e_shoff
#include "runtime/plan/container.h"
#include <elf.h>
#include <string.h>

static const char SECTION[] = ".tilec.plan";

enum { ALIGN = 8 };

// Reads and checks the header: section table and section names must lie inside the file. Copies, since a file in memory
// need not be aligned.
static bool read_header(const uint8_t *file, size_t size, Elf64_Ehdr *header, Elf64_Shdr *names, const char **why) {
    *why = "it is no 64-bit ELF file";
    if (size < sizeof *header) return false;
    memcpy(header, file, sizeof *header);
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    *why = "its section table is damaged";
    size_t table = sizeof(Elf64_Shdr) * (size_t)header->e_shnum;
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 || header->e_shnum >= SHN_LORESERVE - 1 ||
        header->e_shoff > size || table > size - header->e_shoff || header->e_shstrndx >= header->e_shnum)
        return false;
    memcpy(names, file + header->e_shoff + sizeof *names * header->e_shstrndx, sizeof *names);
    return names->sh_offset <= size && names->sh_size <= size - names->sh_offset;
}

static size_t pad(StrBuf *out) {
    while (out->length % ALIGN != 0) sb_char(out, 0);
    return out->length;
}

const uint8_t *container_pack(Arena *arena, const uint8_t *cubin, size_t size, const char *plan, size_t plan_length,
                              size_t *packed_size, const char **why) {
    Elf64_Ehdr header;
    Elf64_Shdr names;
    if (!read_header(cubin, size, &header, &names, why)) return NULL;
    StrBuf out;
    sb_init(&out, arena);
    sb_bytes(&out, (const char *)cubin, size);

    Elf64_Shdr section = {.sh_type = SHT_PROGBITS, .sh_addralign = ALIGN, .sh_size = plan_length};
    section.sh_offset = pad(&out);
    section.sh_name = (Elf64_Word)names.sh_size;
    sb_bytes(&out, plan, plan_length);

    size_t new_names = pad(&out);
    sb_bytes(&out, (const char *)cubin + names.sh_offset, names.sh_size);
    sb_bytes(&out, SECTION, sizeof SECTION);
    names.sh_offset = new_names;
    names.sh_size += sizeof SECTION;

    size_t table = pad(&out);
    sb_bytes(&out, (const char *)cubin + header.e_shoff, sizeof section * header.e_shnum);
    sb_bytes(&out, (const char *)&section, sizeof section);
    memcpy(out.text + table + sizeof names * header.e_shstrndx, &names, sizeof names);
    header.e_shoff = table;
    header.e_shnum++;
    memcpy(out.text, &header, sizeof header);
    *packed_size = out.length;
    return (const uint8_t *)out.text;
}

const char *container_plan(const uint8_t *cubin, size_t size, size_t *length, const char **why) {
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    if (!read_header(cubin, size, &header, &names, why)) return NULL;
    *why = "it has no launch plan";
    for (int i = 0; i < header.e_shnum; i++) {
        memcpy(&section, cubin + header.e_shoff + sizeof section * (size_t)i, sizeof section);
        if (section.sh_name > names.sh_size || names.sh_size - section.sh_name < sizeof SECTION) continue;
        if (memcmp(cubin + names.sh_offset + section.sh_name, SECTION, sizeof SECTION) != 0) continue;
        if (section.sh_offset > size || section.sh_size > size - section.sh_offset) break;
        *length = section.sh_size;
        return (const char *)cubin + section.sh_offset;
    }
    return NULL;
}
