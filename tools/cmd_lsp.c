// tilec lsp: serves one editor. One thread answers; another one runs the passes on a text that has rested for a moment, so
// that no answer waits for them.
//
// Each change is analysed by the frontend alone, and its diagnostics are published. The analysis with passes adds remarks,
// layouts and decisions; while the text changes on, its facts are those of an older text.
#include "tools/lsp/server.h"
#include "tools/tool.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REST_MS = 200 };   // without a message, before the passes run
enum { PARSE_ERROR = -32700, METHOD_NOT_FOUND = -32601, REQUEST_FAILED = -32803 };   // of the protocol

// ---- the thread of the passes ----
typedef struct PassesJob {
    pthread_t thread;
    bool running;
    char *uri, *path, *text;   // copies
    size_t length;
    int64_t version;
    const LspServer *server;   // target and import root, which do not change
    Analysis *result;
    int done;   // a byte is written here at the end
} PassesJob;

static void *run_job(void *user) {
    PassesJob *job = user;
    const EditorText text = {job->path, job->text, job->length, job->server->target, job->server->import_root};
    job->result = editor_analyse(&text);
    while (write(job->done, "", 1) < 0 && errno == EINTR) continue;
    return NULL;
}

static void free_job(PassesJob *job) {
    free(job->uri);
    free(job->path);
    free(job->text);
    job->running = false;
}

static void start_job(PassesJob *job, const Document *document) {
    job->uri = strdup(document->uri);
    job->path = strdup(document->path);
    job->text = strndup(document->text, document->length);
    job->length = document->length;
    job->version = document->version;
    job->result = NULL;
    bool ready = job->uri && job->path && job->text;
    job->running = ready && pthread_create(&job->thread, NULL, run_job, job) == 0;
    if (!job->running) free_job(job);
}

static void ask_for_refresh(LspServer *server, Arena *arena) {
    StrBuf text;
    sb_init(&text, arena);
    sb_printf(&text, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"method\":\"workspace/inlayHint/refresh\"}",
              (long long)server->asked++);
    if (server->refreshes) message_put(&text);
}

static void end_job(LspServer *server, Arena *arena, PassesJob *job) {
    Document *document = server->documents;
    pthread_join(job->thread, NULL);
    while (document && strcmp(document->uri, job->uri) != 0) document = document->next;
    if (document && job->result) {
        editor_free(document->compiled);
        document->compiled = job->result;
        document->compiled_version = job->version;
        if (job->version == document->version) {
            publish_diagnostics(server, arena, document, document->compiled);
            ask_for_refresh(server, arena);
        }
    } else {
        editor_free(job->result);
    }
    free_job(job);
}

// A document whose present text has no errors, and was not compiled.
static Document *next_to_compile(const LspServer *server) {
    for (Document *document = server->documents; document; document = document->next)
        if (document->compiled_version != document->version && document->now && !diag_errors(document->now->sink))
            return document;
    return NULL;
}

// ---- notifications ----
static void analyse(const LspServer *server, Arena *arena, Document *document) {
    const EditorText text = {document->path, document->text, document->length, NULL, server->import_root};
    document_analysed(document, editor_analyse(&text));
    publish_diagnostics(server, arena, document, document->now);
}

static void close_document(LspServer *server, Arena *arena, const Json *params) {
    Document *document = document_of(server, params), **at = &server->documents;
    if (!document) return;
    while (*at != document) at = &(*at)->next;
    *at = document->next;
    publish_diagnostics(server, arena, document, NULL);
    document_close(document);
}

static void open_document(LspServer *server, Arena *arena, const Json *params) {
    const Json *item = json_get(params, "textDocument");
    const char *uri = json_text(json_get(item, "uri"), "");
    close_document(server, arena, params);
    Document *document = document_open(uri, json_text(json_get(item, "text"), ""));
    if (!document) return;
    document->path = strdup(path_canonical(arena, path_of_uri(arena, uri)));
    if (!document->path) {
        document_close(document);
        return;
    }
    document->numbered = json_integer(json_get(item, "version"), 0);
    document->next = server->documents;
    server->documents = document;
    analyse(server, arena, document);
}

static void change_document(LspServer *server, Arena *arena, const Json *params) {
    Document *document = document_of(server, params);
    if (!document) return;
    document->numbered = json_integer(json_get(json_get(params, "textDocument"), "version"), 0);
    JSON_EACH(change, json_get(params, "contentChanges")) document_change(document, change, server->utf8);
    analyse(server, arena, document);
}

static void take_notification(LspServer *server, Arena *arena, const char *method, const Json *params) {
    if (strcmp(method, "exit") == 0) server->quit = true;
    else if (strcmp(method, "textDocument/didOpen") == 0) open_document(server, arena, params);
    else if (strcmp(method, "textDocument/didChange") == 0) change_document(server, arena, params);
    else if (strcmp(method, "textDocument/didClose") == 0) close_document(server, arena, params);
}

// ---- requests ----
static void put_id(StrBuf *out, const Json *id) {
    sb_str(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    if (id && id->kind == JSON_STRING) json_quote(out, id->text);
    else if (id && id->kind == JSON_INTEGER) sb_printf(out, "%lld", (long long)id->integer);
    else sb_str(out, "null");
}

static void put_error(Arena *arena, const Json *id, int code, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    put_id(&out, id);
    sb_printf(&out, ",\"error\":{\"code\":%d,\"message\":", code);
    json_quote(&out, text);
    sb_str(&out, "}}");
    message_put(&out);
}

static void answer(LspServer *server, Arena *arena, const char *method, const Json *id, const Json *params) {
    StrBuf result, out;
    sb_init(&result, arena);
    sb_init(&out, arena);
    LspAnswer *make = lsp_answer(method);
    if (!make) {
        put_error(arena, id, METHOD_NOT_FOUND, arena_printf(arena, "tilec lsp has no '%s'", method));
    } else if (!make(server, arena, params, &result)) {
        put_error(arena, id, REQUEST_FAILED, sb_text(&result));
    } else {
        put_id(&out, id);
        sb_printf(&out, ",\"result\":%s}", sb_text(&result));
        message_put(&out);
    }
}

// ---- the loop ----
typedef struct Step {
    LspServer *server;
    MessageInput *input;
    PassesJob *job;   // that has ended; NULL: a message
    InputState state;
} Step;

static bool take_step(void *user, Arena *arena) {
    Step *step = user;
    const Json *message = NULL;
    if (step->job) {
        end_job(step->server, arena, step->job);
        return true;
    }
    step->state = input_take(step->input, arena, &message);
    if (step->state != INPUT_MESSAGE) return true;
    const char *method = json_text(json_get(message, "method"), NULL);
    const Json *id = json_get(message, "id"), *params = json_get(message, "params");
    if (!message) put_error(arena, NULL, PARSE_ERROR, "the message is no JSON");
    if (method && id) answer(step->server, arena, method, id, params);
    else if (method) take_notification(step->server, arena, method, params);
    return true;
}

// Each message has an arena of its own.
static InputState step(Tool *tool, LspServer *server, MessageInput *input, PassesJob *ended) {
    Step step = {server, input, ended, INPUT_MESSAGE};
    arena_scope(tool->failure, take_step, &step);
    return step.state;
}

static void serve(Tool *tool, LspServer *server, MessageInput *input, PassesJob *job, int done) {
    for (InputState state = INPUT_MESSAGE; state != INPUT_END && !server->quit;) {
        struct pollfd fds[] = {{.fd = input->fd, .events = POLLIN}, {.fd = done, .events = POLLIN}};
        Document *waiting = job->running ? NULL : next_to_compile(server);
        int ready = poll(fds, 2, waiting ? REST_MS : -1);
        if (ready == 0 && waiting) {
            waiting->compiled_version = waiting->version;   // once, also if no thread can be started
            start_job(job, waiting);
        }
        if (ready <= 0) continue;
        char byte;
        if (fds[1].revents && read(done, &byte, 1) == 1) step(tool, server, input, job);
        if (!fds[0].revents) continue;
        state = input_read(input);
        while (state == INPUT_MESSAGE && !server->quit) state = step(tool, server, input, NULL);
    }
}

bool command_lsp(Tool *tool, int *code) {
    int ends[2];
    LspServer server = {.target = tool_target(tool, "sm_90a"),
                        .import_root = option_text(&tool->options, OPTION_IMPORT_ROOT, NULL)};
    if (!server.target) return false;
    if (pipe(ends) != 0) {
        diag(tool->sink, (Span){0}, T_CANNOT_READ, "<pipe>", strerror(errno));
        return false;
    }
    MessageInput input = {.fd = STDIN_FILENO};
    PassesJob job = {.server = &server, .done = ends[1]};
    serve(tool, &server, &input, &job, ends[0]);
    if (job.running) {
        pthread_join(job.thread, NULL);
        editor_free(job.result);
        free_job(&job);
    }
    for (Document *document = server.documents, *next; document; document = next) {
        next = document->next;
        document_close(document);
    }
    input_free(&input);
    *code = server.stopped ? 0 : 1;   // of the protocol: `exit` without `shutdown`
    return true;
}
