// Adding a section to a cubin, and leaving one out.
//
// The header of an ELF file points to the table of section headers, which may be anywhere in the file. We append the
// plan, the section names plus one, and a new table with one more row, and update the pointer. Drivers and tools ignore
// the unknown section.
//
//     | ELF header | cubin's sections ... | old names | old table | plan | names + ".tilec.plan" | new table |
//                                                                                                  ^ e_shoff
//
// With line tables ptxas writes the whole PTX text into the cubin, for a tool's view of PTX: two thirds of an artefact.
// Lines of the source do not need it, and `tilec build --emit=ptx` prints it. It is left empty; what stands behind it
// moves up by a multiple of what any section is aligned to, and so do the offsets of sections and segments.
#include "runtime/plan/container.h"
#include <elf.h>
#include <string.h>

static const char SECTION[] = ".tilec.plan";

static const char PTX_TEXT[] = ".nv_debug_ptx_txt";

enum { ALIGN = 8, MOST_ALIGNED = 128 };

// Bytes of the cubin that are left out.
typedef struct Gap {
    size_t begin, size;
} Gap;

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

static bool is_named(const uint8_t *file, const Elf64_Shdr *names, const Elf64_Shdr *section, const char *name) {
    size_t size = strlen(name) + 1;
    return section->sh_name <= names->sh_size && names->sh_size - section->sh_name >= size &&
           memcmp(file + names->sh_offset + section->sh_name, name, size) == 0;
}

static Elf64_Shdr section_at(const uint8_t *file, const Elf64_Ehdr *header, int i) {
    Elf64_Shdr section;
    memcpy(&section, file + header->e_shoff + sizeof section * (size_t)i, sizeof section);
    return section;
}

static Gap gap_of(const uint8_t *file, size_t size, const Elf64_Ehdr *header, const Elf64_Shdr *names) {
    for (int i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section = section_at(file, header, i);
        if (!is_named(file, names, &section, PTX_TEXT)) continue;
        if (section.sh_offset > size || section.sh_size > size - section.sh_offset) break;
        return (Gap){section.sh_offset, section.sh_size / MOST_ALIGNED * MOST_ALIGNED};
    }
    return (Gap){size, 0};
}

static uint64_t moved(Gap gap, uint64_t offset) {
    return offset >= gap.begin + gap.size ? offset - gap.size : offset;
}

static void move_segments(StrBuf *out, const Elf64_Ehdr *header, Gap gap) {
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        size_t at = header->e_phoff + sizeof segment * (size_t)i;
        if (header->e_phentsize != sizeof segment || at > out->length || sizeof segment > out->length - at) return;
        memcpy(&segment, out->text + at, sizeof segment);
        segment.p_offset = moved(gap, segment.p_offset);
        memcpy(out->text + at, &segment, sizeof segment);
    }
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
    Gap gap = gap_of(cubin, size, &header, &names);
    StrBuf out;
    sb_init(&out, arena);
    sb_bytes(&out, (const char *)cubin, gap.begin);
    sb_bytes(&out, (const char *)cubin + gap.begin + gap.size, size - gap.begin - gap.size);

    Elf64_Shdr plan_section = {.sh_type = SHT_PROGBITS, .sh_addralign = ALIGN, .sh_size = plan_length};
    plan_section.sh_offset = pad(&out);
    plan_section.sh_name = (Elf64_Word)names.sh_size;
    sb_bytes(&out, plan, plan_length);

    Elf64_Shdr new_names = names;
    new_names.sh_offset = pad(&out);
    new_names.sh_size += sizeof SECTION;
    sb_bytes(&out, (const char *)cubin + names.sh_offset, names.sh_size);
    sb_bytes(&out, SECTION, sizeof SECTION);

    size_t table = pad(&out);
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section = section_at(cubin, &header, i);
        if (section.sh_offset == gap.begin && is_named(cubin, &names, &section, PTX_TEXT)) section.sh_size = 0;
        section.sh_offset = moved(gap, section.sh_offset);
        sb_bytes(&out, (const char *)(i == header.e_shstrndx ? &new_names : &section), sizeof section);
    }
    sb_bytes(&out, (const char *)&plan_section, sizeof plan_section);
    header.e_phoff = moved(gap, header.e_phoff);
    move_segments(&out, &header, gap);
    header.e_shoff = table;
    header.e_shnum++;
    memcpy(out.text, &header, sizeof header);
    *packed_size = out.length;
    return (const uint8_t *)out.text;
}

const char *container_plan(const uint8_t *cubin, size_t size, size_t *length, const char **why) {
    Elf64_Ehdr header;
    Elf64_Shdr names;
    if (!read_header(cubin, size, &header, &names, why)) return NULL;
    *why = "it has no launch plan";
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section = section_at(cubin, &header, i);
        if (!is_named(cubin, &names, &section, SECTION)) continue;
        if (section.sh_offset > size || section.sh_size > size - section.sh_offset) break;
        *length = section.sh_size;
        return (const char *)cubin + section.sh_offset;
    }
    return NULL;
}
