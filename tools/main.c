// tilec: a thin client of the library. Results go to stdout, messages to stderr; the exit code is a TilecStatus.
#include "runtime/api/status.h"
#include "runtime/compile/compile.h"
#include "runtime/worker/serve.h"
#include "tools/tool.h"
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const CommandFn commands[COMMAND_COUNT] = {
#ifndef TILEC_NO_CODEGEN
    [COMMAND_BUILD] = command_build,   [COMMAND_OPT] = command_opt,         [COMMAND_PASSES] = command_passes,
    [COMMAND_TUNE] = command_tune,     [COMMAND_LSP] = command_lsp,
#endif
    [COMMAND_TEST] = command_test,     [COMMAND_RUN] = command_run,         [COMMAND_TARGETS] = command_targets,
    [COMMAND_LAYOUT] = command_layout, [COMMAND_EXPLAIN] = command_explain, [COMMAND_DOCTOR] = command_doctor,
    [COMMAND_DOCS] = command_docs,     [COMMAND_BENCH] = command_bench,     [COMMAND_REDUCE] = command_reduce,
    [COMMAND_FMT] = command_fmt,       [COMMAND_CACHE] = command_cache,
};

// --help and --version, of any command. True: handled.
static bool answer_general(Tool *tool) {
    StrBuf text;
    sb_init(&text, tool->arena);
    if (option_given(&tool->options, OPTION_VERSION)) {
        tool_versions(tool, &text);
        tool_pairs(tool, &text);
        return true;
    }
    if (!option_given(&tool->options, OPTION_HELP)) return false;
    if (tool->options.named) help_command(tool->options.command, &text);
    else help_overview(&text);
    fputs(sb_text(&text), stdout);
    return true;
}

static bool check_common(Tool *tool) {
    return option_choice(&tool->options, tool->sink, OPTION_COLOR, 0) >= 0 &&
           option_choice(&tool->options, tool->sink, OPTION_DIAGNOSTICS, 0) >= 0;
}

static bool check_operands(Tool *tool) {
    const CommandInfo *info = &command_infos[tool->options.command];
    if (info->operands[0] || tool->options.operands.count == 0) return true;
    return tool_usage(tool, "%s takes no operands", info->name);
}

static int run(Tool *tool, int argc, char **argv) {
    int code = 0;
    if (argc == 1) {
        StrBuf text;
        sb_init(&text, tool->arena);
        help_overview(&text);
        fputs(sb_text(&text), stderr);
        return TILEC_ERROR_USAGE;
    }
    bool ok = options_parse(tool->arena, tool->sink, argc, argv, &tool->options) && check_common(tool);
    if (ok && answer_general(tool)) {
        tool_show(tool);
        return (int)status_of(tool->sink, 0);
    }
    if (ok) ok = check_operands(tool) && commands[tool->options.command](tool, &code);
    tool_show(tool);
    TilecStatus status = status_of(tool->sink, 0);
    if (status != TILEC_OK) return (int)status;
    return ok || code ? code : TILEC_ERROR_INTERNAL;
}

// A command succeeded only if all of its output was written.
static int check_output(Tool *tool, int code) {
    tool_flush(tool);
    if (!tool->lost || code != 0) return code;
    diag(tool->sink, (Span){0}, T_CANNOT_WRITE, "<stdout>", strerror(tool->lost));
    tool_show(tool);
    return TILEC_ERROR_ENVIRONMENT;
}

static int caught(Failure *failure) {
    if (failure->kind == FAIL_INTERNAL) {
        fprintf(stderr, "error[T%04d]: internal error: %s\n", T_INTERNAL, failure->message);
        fputs("this is a bug in tilec; please report it with the input\n", stderr);
        return TILEC_ERROR_INTERNAL;
    }
    fprintf(stderr, "error[T%04d]: out of memory\n", T_OUT_OF_MEMORY);
    return TILEC_ERROR_ENVIRONMENT;
}

// `ulimit -t`: without a word, the exit code of a signal would say as little as a crash.
static void out_of_time(int number) {
    static const char text[] = "error[T0821]: the limit of CPU time was reached (ulimit -t)\n";
    (void)number;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(written < 0 ? TILEC_ERROR_INTERNAL : TILEC_ERROR_ENVIRONMENT);
}

// The compiler recurses as deep as its limits allow; the stack of the first thread grows to the limit that holds by then.
static bool has_stack(void) {
    enum { LEAST_BYTES = 1 << 20, USUAL_BYTES = 8 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST_BYTES) return true;
    if (limit.rlim_max < LEAST_BYTES) return false;
    limit.rlim_cur = limit.rlim_max < USUAL_BYTES ? limit.rlim_max : USUAL_BYTES;
    return setrlimit(RLIMIT_STACK, &limit) == 0;
}

static int no_stack(void) {
    fprintf(stderr, "error[T%04d]: out of memory: the stack needs 1 MB (ulimit -s 1024)\n", T_OUT_OF_MEMORY);
    return TILEC_ERROR_ENVIRONMENT;
}

int main(int argc, char **argv) {
    if (!has_stack()) return no_stack();
    signal(SIGXFSZ, SIG_IGN);   // a file beyond `ulimit -f` is an error of write, EFBIG
#ifndef TILEC_NO_CODEGEN
    if (argc == 2 && strcmp(argv[1], "serve-compiles") == 0 && can_serve(STDIN_FILENO))
        return serve_compiles(STDIN_FILENO);
#endif
    signal(SIGXCPU, out_of_time);
    static Failure failure;   // static: survives the longjmp, and the arena points to it
    static Tool tool;
    if (FAILURE_CAUGHT(&failure)) {
        if (tool.sink) tool_show(&tool);
        return caught(&failure);
    }
    tool.failure = &failure;
    tool.arena = arena_new(libc_allocator, &failure);
    if (!tool.arena) fail_out_of_memory(&failure);
    tool.sink = diag_sink_new(tool.arena);
    int code = check_output(&tool, run(&tool, argc, argv));
    arena_free(tool.arena);
    return code;
}
