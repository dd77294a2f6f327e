// An artefact for tests, without code: an ELF file that has nothing but names and a plan.
#pragma once
#include <elf.h>
#include <stddef.h>
#include <string.h>

#define TEN(text) text text text text text text text text text text
#define COPY_BACK "{\"do\": \"launch\", \"name\": \"copy\", \"args\": [{\"tensor\": \"t\"}, {\"tensor\": \"y\"}]}"

static const char plan_text[] =
    "{\"manifest\": 10, \"producer\": \"test\", \"target\": \"sm_90a\","
    "\"terms\": [\"tile_rows\", \"step\", \"tail\", \"cluster_rows\", \"cluster_columns\", \"stray\"], \"entries\": ["
    "{\"name\": \"copy\", \"kind\": \"kernel\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"],"
    "\"symbol\": \"copy\", \"grid\": \"ceildiv(N, 256)\", \"threads\": 128, \"shared\": 2048}]},"
    "{\"name\": \"mapped\", \"kind\": \"kernel\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"bf16\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}],"
    "\"maps\": [{\"name\": \"x_map\", \"at\": 1, \"tensor\": \"x\", \"box\": [64], \"swizzle\": 128}],"
    "\"dims\": [\"N\"], \"symbol\": \"mapped\", \"grid\": \"1\", \"threads\": 128, \"pdl\": 16, \"shared\": 0}]},"
    "{\"name\": \"walked\", \"kind\": \"kernel\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"bf16\", \"mode\": \"in\", \"shape\": [\"B\", \"W\", \"C\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"B\"]}],"
    "\"maps\": [{\"name\": \"x_map\", \"at\": 1, \"tensor\": \"x\", \"box\": [64, 32], \"swizzle\": 128,"
    "\"im2col\": {\"lower\": [-2], \"upper\": [\"(W / 3 - 1) * 3 - (W - 1) - 2\"], \"strides\": [3]}}],"
    "\"dims\": [\"B\", \"W\", \"C\"], \"symbol\": \"walked\", \"grid\": \"1\", \"threads\": 128, \"shared\": 0}]},"
    "{\"name\": \"shared\", \"kind\": \"kernel\", \"variants\": [{\"params\": ["
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"], \"compare\": 2,"
    "\"cost\": [\"N\", \"1\", \"1\", \"1\", \"1\", \"1\", 1, 10, 50, 4, 1, 8],"
    "\"symbol\": \"shared\", \"grid\": \"ceildiv(N, cluster_extent(0)) * cluster_extent(0)\", \"threads\": 128,"
    "\"cluster\": [4, 1], \"pdl\": 1, \"shared\": 0}, [1, 1]]},"
    "{\"name\": \"twice\", \"kind\": \"program\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"], \"steps\": ["
    "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f32\", \"shape\": [\"N\"]},"
    "{\"do\": \"fill\", \"tensor\": \"t\", \"value\": \"1.0\"},"
    "{\"do\": \"launch\", \"name\": \"copy\", \"args\": [{\"tensor\": \"x\"}, {\"tensor\": \"t\"}]},"
    "{\"do\": \"launch\", \"name\": \"copy\", \"args\": [{\"tensor\": \"t\"}, {\"tensor\": \"y\"}]}]}]},"
    "{\"name\": \"counted\", \"kind\": \"program\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"], \"steps\": ["
    "{\"do\": \"if\", \"value\": \"N % 2 == 1\", \"then\": [{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f32\", \"shape\": [\"64\"]}], \"else\": []},"
    "{\"do\": \"scratch\", \"name\": \"n\", \"type\": \"f32\", \"shape\": [\"N\"], \"zeroed\": true},"
    "{\"do\": \"launch\", \"name\": \"copy\", \"args\": [{\"tensor\": \"n\"}, {\"tensor\": \"n\"}]}]}]},"
    "{\"name\": \"long\", \"kind\": \"program\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"], \"steps\": ["
    "{\"do\": \"scratch\", \"name\": \"t\", \"type\": \"f32\", \"shape\": [\"N\"]}," TEN(TEN(COPY_BACK ",")) COPY_BACK
    "]}]},"
    "{\"name\": \"many\", \"kind\": \"program\", \"variants\": [{\"params\": ["
    "{\"name\": \"x\", \"type\": \"f32\", \"mode\": \"in\", \"shape\": [\"N\"]},"
    "{\"name\": \"y\", \"type\": \"f32\", \"mode\": \"out\", \"shape\": [\"N\"]}], \"dims\": [\"N\"], \"steps\": ["
    "{\"do\": \"scratch\", \"name\": \"a\", \"type\": \"f32\", \"shape\": [\"N\"], \"zeroed\": true},"
    "{\"do\": \"scratch\", \"name\": \"b\", \"type\": \"f32\", \"shape\": [\"N\"], \"zeroed\": true},"
    "{\"do\": \"scratch\", \"name\": \"c\", \"type\": \"f32\", \"shape\": [\"N\"], \"zeroed\": true}]}]}]}";

static inline const void *artefact_bytes(size_t *size) {
    static const char names[] = "\0.shstrtab\0.tilec.plan";
    static _Alignas(8) struct {
        Elf64_Ehdr header;
        Elf64_Shdr table[3];
        char names[sizeof names];
        char plan[sizeof plan_text];
    } file;
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    file.header.e_shoff = offsetof(__typeof__(file), table);
    file.header.e_shentsize = sizeof(Elf64_Shdr);
    file.header.e_shnum = 3;
    file.header.e_shstrndx = 1;
    memcpy(file.names, names, sizeof names);
    memcpy(file.plan, plan_text, sizeof plan_text);
    file.table[1] = (Elf64_Shdr){.sh_name = 1, .sh_offset = offsetof(__typeof__(file), names), .sh_size = sizeof names};
    file.table[2] =
        (Elf64_Shdr){.sh_name = 11, .sh_offset = offsetof(__typeof__(file), plan), .sh_size = sizeof plan_text - 1};
    *size = sizeof file;
    return &file;
}
