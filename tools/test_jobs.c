#include "tools/test_jobs.h"
#include "runtime/api/status.h"
#include "support/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- processes ----

typedef struct Child {
    pid_t process;   // 0: it has ended, or was not started
    FILE *out, *err, *outcomes;
    int status;   // as waitpid has it
} Child;

// In the child: tests the file, and writes the outcomes. Its exit code: of an error, or 0.
static int test_one(TestJobs *jobs, Child *child, const char *path) {
    StrBuf text;
    if (dup2(fileno(child->out), STDOUT_FILENO) < 0 || dup2(fileno(child->err), STDERR_FILENO) < 0)
        return TILEC_ERROR_ENVIRONMENT;
    *jobs->outcomes = (TestOutcomes){0};   // those of files that have ended
    bool ok = jobs->test(jobs->user, path);
    tool_show(jobs->tool);
    sb_init(&text, jobs->tool->arena);
    VEC_EACH (TestOutcome, outcome, jobs->outcomes) test_outcome_json(outcome, &text);
    fputs(sb_text(&text), child->outcomes);
    TilecStatus status = status_of(jobs->tool->sink, 0);
    return status != TILEC_OK ? (int)status : ok ? 0 : TILEC_ERROR_SOURCE;
}

static bool start(TestJobs *jobs, Child *child, const char *path) {
    *child = (Child){.out = tmpfile(), .err = tmpfile(), .outcomes = tmpfile()};
    tool_flush(jobs->tool);
    child->process = child->out && child->err && child->outcomes ? fork() : -1;
    if (child->process == 0) exit(test_one(jobs, child, path));
    if (child->process > 0) return true;
    child->process = 0;
    diag(jobs->tool->sink, (Span){0}, T_CANNOT_RUN, "tilec test", strerror(errno));
    return false;
}

static void copy(FILE *from, FILE *to) {
    char block[4096];
    size_t size;
    rewind(from);
    while ((size = fread(block, 1, sizeof block, from)) > 0) fwrite(block, 1, size, to);
    fflush(to);
}

static TestOutcome outcome_of(const Json *json) {
    const Json *worst = json_get(json, "worst"), *tolerance = json_get(json, "tolerance");
    const Json *seconds = json_get(json, "seconds");
    return (TestOutcome){.file = json_text(json_get(json, "file"), ""),
                         .name = json_text(json_get(json, "test"), ""),
                         .passed = json_boolean(json_get(json, "passed"), false),
                         .error = json_boolean(json_get(json, "error"), false),
                         .why = json_text(json_get(json, "why"), NULL),
                         .worst = worst && worst->kind == JSON_REAL ? worst->real : 0,
                         .tolerance = tolerance && tolerance->kind == JSON_REAL ? tolerance->real : 0,
                         .seconds = seconds && seconds->kind == JSON_REAL ? seconds->real : 0};
}

static void read_outcomes(TestJobs *jobs, FILE *from) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    rewind(from);
    while ((length = getline(&line, &room, from)) > 0) {
        const char *text = arena_strndup(jobs->tool->arena, line, (size_t)length), *why;
        const Json *json = json_read(jobs->tool->arena, text, (size_t)length, &why);
        if (json) vec_push(jobs->tool->arena, jobs->outcomes, outcome_of(json));
    }
    free(line);
}

// Prints what a process said, and takes its outcomes.
static void finish(TestJobs *jobs, Child *child, const char *path) {
    int code = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : TILEC_ERROR_INTERNAL;
    copy(child->out, stdout);
    copy(child->err, stderr);
    read_outcomes(jobs, child->outcomes);
    if (WIFSIGNALED(child->status)) {
        TestOutcome outcome = {.file = path, .name = "", .error = true, .why = strsignal(WTERMSIG(child->status))};
        outcome.why = arena_strdup(jobs->tool->arena, outcome.why);
        diag_note(diag(jobs->tool->sink, (Span){0}, T_COMPILER_CRASHED, WTERMSIG(child->status), outcome.why),
                  "it tested %s", path);
        vec_push(jobs->tool->arena, jobs->outcomes, outcome);
    }
    if (!jobs->status) jobs->status = code;
    fclose(child->out);
    fclose(child->err);
    fclose(child->outcomes);
}

static void wait_for_one(Child *children, int count) {
    int status;
    pid_t ended = waitpid(-1, &status, 0);
    for (int i = 0; ended > 0 && i < count; i++) {
        if (children[i].process != ended) continue;
        children[i].process = 0;
        children[i].status = status;
    }
}

bool test_in_processes(TestJobs *jobs) {
    int started = 0, finished = 0, running = 0;
    bool ok = true;
    Child *children = NEW_ARRAY(jobs->tool->arena, Child, jobs->files->count + 1);
    while (finished < started || (ok && started < jobs->files->count)) {
        while (ok && running < jobs->count && started < jobs->files->count) {
            ok = start(jobs, &children[started], jobs->files->items[started]);
            started += ok;
            running += ok;
        }
        if (running > 0) wait_for_one(children, started), running--;
        while (finished < started && children[finished].process == 0) {
            finish(jobs, &children[finished], jobs->files->items[finished]);
            finished++;
        }
    }
    return ok;
}

// ---- JUnit ----

static void xml_text(const char *text, StrBuf *out) {
    for (; *text; text++) {
        const char *names[] = {['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};
        size_t c = (uint8_t)*text;
        if (c < COUNT_OF(names) && names[c]) sb_str(out, names[c]);
        else sb_char(out, c < ' ' ? ' ' : *text);
    }
}

static void junit_case(const TestOutcome *outcome, StrBuf *out) {
    sb_str(out, "    <testcase classname=\"");
    xml_text(outcome->file, out);
    sb_str(out, "\" name=\"");
    xml_text(outcome->name[0] ? outcome->name : "the file", out);   // readers of reports refuse a case without a name
    sb_printf(out, "\" time=\"%.3f\"", outcome->seconds);
    if (outcome->passed) {
        sb_str(out, "/>\n");
        return;
    }
    sb_printf(out, "><%s message=\"", outcome->error ? "error" : "failure");
    xml_text(outcome->why ? outcome->why : "see the errors", out);
    sb_str(out, "\"/></testcase>\n");
}

void junit_write(const TestOutcomes *outcomes, StrBuf *out) {
    sb_str(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (int i = 0, end; i < outcomes->count; i = end) {
        const char *file = outcomes->items[i].file;
        int failed = 0, errors = 0;
        double seconds = 0;
        for (end = i; end < outcomes->count && strcmp(outcomes->items[end].file, file) == 0; end++) {
            errors += outcomes->items[end].error;
            failed += !outcomes->items[end].passed && !outcomes->items[end].error;
            seconds += outcomes->items[end].seconds;
        }
        sb_str(out, "  <testsuite name=\"");
        xml_text(file, out);
        sb_printf(out, "\" tests=\"%d\" failures=\"%d\" errors=\"%d\" time=\"%.3f\">\n", end - i, failed, errors,
                  seconds);
        for (int k = i; k < end; k++) junit_case(&outcomes->items[k], out);
        sb_str(out, "  </testsuite>\n");
    }
    sb_str(out, "</testsuites>\n");
}
