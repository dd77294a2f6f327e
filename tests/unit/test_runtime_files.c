// Files, JSON, .npy and the cubin as container: everything that reads bytes from outside.
#include "runtime/host/npy.h"
#include "runtime/plan/container.h"
#include "support/files.h"
#include "support/json.h"
#include "tests/unit/unit.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const Json *parse(Arena *arena, const char *text) {
    const char *why = NULL;
    const Json *value = json_read(arena, text, strlen(text), &why);
    assert_int_equal(value == NULL, why != NULL);
    return value;
}

static void test_json(void **state) {
    Arena *arena = *state;
    const Json *v = parse(arena, " {\"a\": [1, -2.5e1, true, null], \"b\": {\"c\": \"x\\n\\u00e9\\ud83d\\ude00\"}} ");
    const Json *a = json_get(v, "a");
    assert_int_equal(a->count, 4);
    assert_int_equal(json_integer(json_at(a, 0), 0), 1);
    assert_true(json_at(a, 1)->real == -25);
    assert_true(json_boolean(json_at(a, 2), false));
    assert_string_equal(json_text(json_get(json_get(v, "b"), "c"), ""), "x\n\xc3\xa9\xf0\x9f\x98\x80");
    assert_null(json_at(a, 4));
    assert_null(json_get(json_get(v, "missing"), "c"));
    assert_int_equal(json_integer(parse(arena, "-9223372036854775808"), 0), INT64_MIN);
    assert_int_equal(json_integer(json_get(v, "b"), 7), 7);
}

static void test_json_refuses(void **state) {
    Arena *arena = *state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\" 1}",
                                      "\"abc",
                                      "tru",
                                      "1 2",
                                      "\"\\x\"",
                                      "\"\\ud800x\"",
                                      "[1 2]",
                                      "{a: 1}",
                                      "\"a\nb\"",
                                      "-",
                                      "99999999999999999999",
                                      "\"\\u0000\"",
                                      "\"\\udc00\"",
                                      "\"\\u12",
                                      "\"\\",
                                      "\"\xff\"",
                                      "\"\xe2\x82",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "1.5e",
                                      "1.",
                                      "007",
                                      "-01",
                                      "{\"a\": 1, \"a\": 2}",
                                      "{\"a\":}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_null(parse(arena, bad[i]));
    char *deep = arena_alloc(arena, 100001);
    memset(deep, '[', 100000);
    assert_null(parse(arena, deep));
}

static void test_json_quote(void **state) {
    StrBuf out;
    sb_init(&out, *state);
    json_quote(&out, "a\"b\\c\n\t\xc3\xa9");
    assert_string_equal(sb_text(&out), "\"a\\\"b\\\\c\\n\\u0009\xc3\xa9\"");
}

static char *scratch_folder(Arena *arena) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/tilec-test-XXXXXX", base ? base : P_tmpdir);
    assert_non_null(mkdtemp(path));
    return path;
}

static void test_files(void **state) {
    Arena *arena = *state;
    DiagSink *sink = diag_sink_new(arena);
    char *folder = scratch_folder(arena), *path = arena_printf(arena, "%s/a.txt", folder);
    FileText file;
    const char *why;
    assert_true(file_write(arena, sink, path, "first", 5));
    assert_true(file_write(arena, sink, path, "again", 5));
    assert_true(file_read(arena, sink, path, 0, &file));
    assert_string_equal(file.text, "again");
    assert_false(file_load(arena, path, 3, &file, &why));
    assert_false(file_read(arena, sink, path, 3, &file));
    assert_false(file_read(arena, sink, folder, 0, &file));
    assert_false(file_read(arena, sink, arena_printf(arena, "%s/none", folder), 0, &file));
    assert_false(file_write(arena, sink, arena_printf(arena, "%s/none/b", folder), "x", 1));
    assert_false(file_write(arena, sink, folder, "x", 1));
    assert_int_equal(diag_errors(sink), 5);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0400, 0400);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);   // nothing temporary is left behind
}

static void test_paths(void **state) {
    Arena *arena = *state;
    assert_string_equal(path_stem(arena, "a/b/gemm.tile"), "gemm");
    assert_string_equal(path_stem(arena, "gemm"), "gemm");
    assert_string_equal(path_stem(arena, "a/.hidden"), ".hidden");
    assert_string_equal(path_stem(arena, "-"), "stdin");
    assert_string_equal(path_beside(arena, "a/b.tile", "c.tile"), "a/c.tile");
    assert_string_equal(path_beside(arena, "b.tile", "c.tile"), "c.tile");
    assert_string_equal(path_beside(arena, "a/b.tile", "/c.tile"), "/c.tile");
}

// ---- .npy ----

static void test_npy_round_trip(void **state) {
    Arena *arena = *state;
    static const Type types[] = {TYPE_BOOL, TYPE_I8,  TYPE_I64, TYPE_U16,  TYPE_F16,
                                 TYPE_BF16, TYPE_F32, TYPE_F64, TYPE_E4M3, TYPE_E5M2};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uint8_t data[6 * 8];
        for (size_t b = 0; b < sizeof data; b++) data[b] = (uint8_t)(b % 2);
        Tensor in = {.type = types[i], .rank = 2, .shape = {2, 3}, .data = data}, out;
        in.bytes = 6 * (size_t)type_bytes(types[i]);
        StrBuf file;
        sb_init(&file, arena);
        npy_format(&in, &file);
        assert_int_equal((file.length - in.bytes) % 64, 0);
        assert_null(npy_parse(arena, (uint8_t *)file.text, file.length, types[i], &out));
        assert_int_equal(out.rank, 2);
        assert_int_equal(out.shape[1], 3);
        assert_memory_equal(out.data, data, in.bytes);
    }
}

// A file with this dictionary and 64 zero bytes of data.
static const char *parse_header(Arena *arena, const char *dictionary, Type type, Tensor *out) {
    StrBuf file;
    sb_init(&file, arena);
    sb_bytes(&file, "\x93NUMPY\1\0", 8);
    sb_char(&file, (char)strlen(dictionary));
    sb_char(&file, 0);
    sb_str(&file, dictionary);
    for (int i = 0; i < 64; i++) sb_char(&file, 0);
    return npy_parse(arena, (uint8_t *)file.text, file.length, type, out);
}

static void test_npy_refuses(void **state) {
    Arena *arena = *state;
    Tensor t;
    static const char *const bad[] = {
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000000000, 9000000000), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 }",
        "{'descr': '<f4', 'fortran_order': False}",
        "{}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_non_null(parse_header(arena, bad[i], TYPE_F32, &t));
    assert_non_null(npy_parse(arena, (const uint8_t *)"\x93NUMPY\1\0\xff\xff", 10, TYPE_F32, &t));
    assert_non_null(npy_parse(arena, (const uint8_t *)"hello world", 11, TYPE_F32, &t));
}

static void test_npy_converts(void **state) {
    Arena *arena = *state;
    Tensor t;
    assert_null(parse_header(arena, "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }", TYPE_BF16, &t));
    assert_int_equal(t.type, TYPE_BF16);
    assert_int_equal(t.bytes, 8);
    assert_null(parse_header(arena, "{'descr': '<u2', 'fortran_order': True, 'shape': (4,), }", TYPE_BF16, &t));
    assert_null(parse_header(arena, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", TYPE_F32, &t));
    assert_int_equal(t.rank, 0);
    assert_null(parse_header(arena, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }", TYPE_F32, &t));
    assert_int_equal(t.bytes, 0);
}

// ---- container ----

// The smallest ELF file with a section table: the null section and the names.
static size_t tiny_elf(uint8_t *out) {
    static const char names[] = "\0.shstrtab";
    Elf64_Ehdr header = {
        .e_shoff = sizeof header + 16, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 2, .e_shstrndx = 1};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    Elf64_Shdr table[2] = {{0},
                           {.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = sizeof header, .sh_size = sizeof names}};
    memcpy(out, &header, sizeof header);
    memcpy(out + sizeof header, names, sizeof names);
    memcpy(out + header.e_shoff, table, sizeof table);
    return header.e_shoff + sizeof table;
}

static void test_container(void **state) {
    Arena *arena = *state;
    uint8_t elf[512] = {0};
    size_t size = tiny_elf(elf), packed_size, length;
    const char *why = NULL;
    assert_null(container_plan(elf, size, &length, &why));
    const uint8_t *packed = container_pack(arena, elf, size, "{plan}", 6, &packed_size, &why);
    assert_non_null(packed);
    const char *plan = container_plan(packed, packed_size, &length, &why);
    assert_int_equal(length, 6);
    assert_memory_equal(plan, "{plan}", 6);
    assert_memory_equal(packed + sizeof(Elf64_Ehdr), elf + sizeof(Elf64_Ehdr), size - sizeof(Elf64_Ehdr));
}

// The PTX text of a cubin with line tables is left out; sections, segments and tables behind it are found where they moved to.
static void test_container_leaves_out_ptx(void **state) {
    enum {
        TEXT = 1000,
        CODE = 256,
        TEXT_AT = 100,
        CODE_AT = 1152,
        PROGRAM_AT = CODE_AT + CODE,
        NAMES_AT = PROGRAM_AT + 56,
        TABLE_AT = 1520
    };
    static const char names[] = "\0.shstrtab\0.nv_debug_ptx_txt\0.text.k";
    Arena *arena = *state;
    uint8_t elf[TABLE_AT + 4 * sizeof(Elf64_Shdr)] = {0};
    Elf64_Ehdr header = {.e_shoff = TABLE_AT,
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = 4,
                         .e_shstrndx = 1,
                         .e_phoff = PROGRAM_AT,
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_phnum = 1};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    Elf64_Shdr table[4] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = NAMES_AT, .sh_size = sizeof names},
        {.sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = TEXT_AT, .sh_size = TEXT},
        {.sh_name = 29, .sh_type = SHT_PROGBITS, .sh_offset = CODE_AT, .sh_size = CODE, .sh_addralign = 128}};
    Elf64_Phdr program = {.p_type = PT_LOAD, .p_offset = CODE_AT, .p_filesz = CODE};
    memcpy(elf, &header, sizeof header);
    memset(elf + TEXT_AT, 'p', TEXT);
    for (int i = 0; i < CODE; i++) elf[CODE_AT + i] = (uint8_t)i;
    memcpy(elf + PROGRAM_AT, &program, sizeof program);
    memcpy(elf + NAMES_AT, names, sizeof names);
    memcpy(elf + TABLE_AT, table, sizeof table);

    size_t packed_size, length;
    const char *why = NULL;
    const uint8_t *packed = container_pack(arena, elf, sizeof elf, "{plan}", 6, &packed_size, &why);
    assert_non_null(packed);
    assert_true(packed_size < sizeof elf - TEXT + 128 + 1024);
    assert_memory_equal(container_plan(packed, packed_size, &length, &why), "{plan}", 6);
    Elf64_Shdr text, code;
    memcpy(&header, packed, sizeof header);
    memcpy(&text, packed + header.e_shoff + 2 * sizeof text, sizeof text);
    memcpy(&code, packed + header.e_shoff + 3 * sizeof code, sizeof code);
    memcpy(&program, packed + header.e_phoff, sizeof program);
    assert_int_equal(text.sh_size, 0);
    assert_int_equal(code.sh_offset, CODE_AT - TEXT / 128 * 128);
    assert_int_equal(program.p_offset, code.sh_offset);
    assert_int_equal(program.p_filesz, CODE);
    assert_memory_equal(packed + code.sh_offset, elf + CODE_AT, CODE);
}

static void test_container_refuses(void **state) {
    Arena *arena = *state;
    uint8_t elf[512] = {0};
    size_t size = tiny_elf(elf), packed_size, length;
    const char *why = NULL;
    const uint8_t *packed = container_pack(arena, elf, size, "{plan}", 6, &packed_size, &why);
    for (size_t cut = 0; cut < packed_size; cut++) {   // no prefix is read beyond its end
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, packed, cut);
        assert_null(container_plan(copy, cut, &length, &why));
        free(copy);
    }
    for (size_t at = 0; at < sizeof(Elf64_Ehdr); at++) {   // nor with a damaged header
        uint8_t *copy = malloc(packed_size);
        memcpy(copy, packed, packed_size);
        copy[at] ^= 0xFF;
        container_plan(copy, packed_size, &length, &why);
        free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_json),
        IN_ARENA(test_json_refuses),
        IN_ARENA(test_json_quote),
        IN_ARENA(test_files),
        IN_ARENA(test_paths),
        IN_ARENA(test_npy_round_trip),
        IN_ARENA(test_npy_refuses),
        IN_ARENA(test_npy_converts),
        IN_ARENA(test_container),
        IN_ARENA(test_container_refuses),
        IN_ARENA(test_container_leaves_out_ptx),
    };
    return run(tests);
}
