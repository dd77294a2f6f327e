#include "tools/ask.h"
#include "runtime/cache/cache.h"
#include <string.h>
#include <unistd.h>

bool ask_open(Tool *tool, const char *path, const Target *target, Ask *out) {
    enum { FOLDER = 4096 };
    const Options *o = &tool->options;
    int count;
    int64_t optimize = 1;
    const Define *defines;
    FileText source;
    char *folder = arena_alloc(tool->arena, FOLDER);
    if (!file_read(tool->arena, tool->sink, path, SOURCE_LIMIT, &source) || !tool_defines(tool, &count, &defines) ||
        !option_number(o, tool->sink, OPTION_OPTIMIZE, 0, 2, &optimize))
        return false;
    TilecDefine *given = NEW_ARRAY(tool->arena, TilecDefine, count + 1);
    for (int i = 0; i < count; i++) given[i] = (TilecDefine){defines[i].name, defines[i].value};
    const char *ptxas = option_text(o, OPTION_PTXAS, NULL);
    *out = (Ask){.request = {.name = strcmp(path, "-") == 0 ? "<stdin>" : path,
                             .text = source.text,
                             .length = source.length,
                             .folder = getcwd(folder, FOLDER) ? folder : "",
                             .target = target->name,
                             .only = option_text(o, OPTION_ONLY, NULL),
                             .ptxas = ptxas ? ptxas : assembler_find(tool->arena),
                             .import_root = option_text(o, OPTION_IMPORT_ROOT, NULL),
                             .define_count = count,
                             .defines = given,
                             .optimize = optimize,
                             .lines = !option_given(o, OPTION_NO_LINES),
                             .remarks = option_given(o, OPTION_REMARKS),
                             .pdl = option_given(o, OPTION_PDL),
                             .independent = option_text(o, OPTION_INDEPENDENT, NULL),
                             .assemble = true}};
    return true;
}

bool ask_record(Tool *tool, const char *path, Ask *ask) {
    bool named;
    FileText text;
    const char *record = tool_record_path(tool, path, &named);
    if (!record) return true;
    if (!record_load(tool->arena, tool->sink, record, named, &text)) return false;
    if (!text.text) return true;
    ask->request.record = record;
    ask->request.record_text = text.text;
    ask->request.record_length = text.length;
    return true;
}

static bool compile_here(void *user, CompileReply *reply) {
    Ask *ask = user;
    answer_request(&ask->request, (PhaseHook){0}, &ask->answer);
    *reply = ask->answer.reply;
    return true;
}

bool ask(Tool *tool, Ask *ask) {
    Arena *arena = tool->arena;
    const char *self = path_canonical(arena, "/proc/self/exe");
    CacheSettings cache = cache_settings(arena, NULL);
    ProgramHashes programs = {0};
    CacheHash key;
    bool has_key =
        cache.on && cache.store.folder && cache_key(arena, &cache.store, &programs, &ask->request, self, &key);
    const CachedCompile compile = {.cache = &cache,
                                   .request = &ask->request,
                                   .tilec = self,
                                   .known = &programs,
                                   .key = has_key ? &key : NULL,
                                   .compile = compile_here,
                                   .user = ask};
    return cached_compile(arena, &compile, &ask->reply) && reply_diagnostics(&ask->reply, tool->sink) &&
           ask->reply.status == TILEC_OK;
}

void ask_end(Ask *ask) {
    answer_free(&ask->answer);
    ask->answer = (Answer){0};
    ask->reply = (CompileReply){0};
}
