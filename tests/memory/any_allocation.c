// Refuses sampled requests for memory of any kind, nearly all LLVM's, in the process that compiles: by the library, and
// by the command. The right status each time, never a crash, the right text where the compile goes on.
//
//     any_allocation PRELOADED.so FILE.tile COUNT     COUNT requests, spread evenly; where they begin: TILEC_TEST_SEED
//
// Every second time all requests after it are refused too; every tenth time the command is tried as well. The last
// compile, of the same context, is refused nothing.
#include "tests/memory/preloaded.h"
#include "tests/memory/read_text.h"
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tilec/tilec.h>
#include <unistd.h>

extern char **environ;

enum { OUT_OF_MEMORY = 9902, MOST_WRONG = 10 };

typedef struct Scene {
    const char *name, *text;
    size_t length;
    Refusal *refusal;
    TilecContext *context;
    char *ptx;     // of a compile to which nothing was refused
    long failed;   // compiles
} Scene;

static void refuse(const Scene *scene, long first, long last) {
    scene->refusal->requests = 0;
    scene->refusal->first = first;
    scene->refusal->last = last;
}

// What is wrong with a compile by the library; NULL: nothing.
static const char *library_trouble(Scene *scene, bool must) {
    static char text[300];
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecDiagnostic said = {.size = sizeof said, .message = ""};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_90a";
    options.no_assemble = true;
    TilecStatus status =
        tilec_compile(scene->context, scene->name, scene->text, scene->length, &options, &artefact, &diagnostics);
    const char *ptx = tilec_artefact_ptx(artefact);
    if (!scene->ptx) scene->ptx = strdup(ptx);
    bool same = status != TILEC_OK || strcmp(ptx, scene->ptx) == 0;
    tilec_diagnostics_get(diagnostics, 0, &said);
    snprintf(text, sizeof text, "status %d, T%04d %.200s", (int)status, said.code, said.message);
    int code = said.code;
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    if (!same) return "another result";
    if (status == TILEC_OK) return NULL;
    scene->failed++;
    bool right = status == TILEC_ERROR_ENVIRONMENT && (code == OUT_OF_MEMORY || code == 0);
    return right && !must ? NULL : text;
}

static const char *command_trouble(const Scene *scene) {
    static char text[100];
    char *const arguments[] = {(char *)"tilec",
                               (char *)scene->name,
                               (char *)"--target=sm_90a",
                               (char *)"--emit=ptx",
                               (char *)"-o",
                               (char *)"/dev/null",
                               NULL};
    int status = 0;
    pid_t id;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(&id, getenv("TILEC_COMPILER"), &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error || waitpid(id, &status, 0) != id) return "the command does not start";
    snprintf(text, sizeof text, "the command ends with status %#x", (unsigned)status);
    bool right = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == TILEC_ERROR_ENVIRONMENT);
    return right ? NULL : text;
}

static int report(const Scene *scene, long number, const char *why) {
    if (why) printf("%s, request %ld: %s\n", scene->name, number, why);
    fflush(stdout);
    return why != NULL;
}

// Of a process that was started for it, so the requests before main() are among them.
static int refuse_one(Scene *scene, long number, bool others, bool command) {
    long last = others ? LONG_MAX : number;
    if (tilec_context_create(NULL, &scene->context) != TILEC_OK) return report(scene, number, "no context");
    refuse(scene, number, last);
    int wrong = report(scene, number, library_trouble(scene, !number));
    refuse(scene, number, last);
    if (command) wrong += report(scene, number, command_trouble(scene));
    refuse(scene, 0, -1);
    tilec_context_destroy(scene->context);
    return wrong;
}

static int sample(Scene *scene, long count) {
    const char *seed = getenv("TILEC_TEST_SEED");
    int wrong = refuse_one(scene, 0, false, false);
    refuse(scene, 0, -1);
    tilec_context_create(NULL, &scene->context);
    wrong += report(scene, 0, library_trouble(scene, true));
    long all = scene->refusal->requests;
    long step = all > count ? all / count : 1,
         number = 1 + (seed ? (long)(strtoul(seed, NULL, 16) % (unsigned long)step) : 0);
    long done = 0;
    for (TilecContext *kept = scene->context; number <= all && done < count && wrong < MOST_WRONG;
         number += step, done++) {
        wrong += refuse_one(scene, number, done % 2, done % 10 == 0);
        scene->context = kept;
    }
    wrong += report(scene, 0, library_trouble(scene, true));
    tilec_context_destroy(scene->context);
    printf("%s: %ld of %ld requests refused, every second one with all after it: %ld compiles failed, %d wrong\n",
           scene->name, done, all, scene->failed, wrong);
    free(scene->ptx);
    return wrong || !scene->failed;
}

static bool map_refusal(Scene *scene, const char *preloaded) {
    char path[] = "/tmp/tilec_refuse_XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, sizeof *scene->refusal)) return false;
    scene->refusal = mmap(NULL, sizeof *scene->refusal, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    setenv("TILEC_REFUSE", path, 1);
    setenv("LD_PRELOAD", preloaded, 1);
    return scene->refusal != MAP_FAILED;
}

int main(int argc, char **argv) {
    if (argc < 4 || !getenv("TILEC_COMPILER")) return 2;
    Scene scene = {.name = argv[2]};
    scene.text = read_text(argv[2], &scene.length);
    int wrong = !scene.text || !map_refusal(&scene, argv[1]) || sample(&scene, atol(argv[3]));
    if (getenv("TILEC_REFUSE")) unlink(getenv("TILEC_REFUSE"));
    return wrong;
}
