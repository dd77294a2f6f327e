// Loading and launching through the public API, against the fake driver of this folder.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilec/tilec.h>
#include <unistd.h>

// A cubin that the fake driver takes: an ELF file with a plan of one kernel and one program. Made without an assembler.
#include "tests/fake_cuda/artefact.h"

typedef struct Fixture {
    TilecContext *context;
    TilecArtefact *artefact;
    TilecModule *module;
    TilecDiagnostics *diagnostics;
    char log[PATH_MAX];
} Fixture;

static Fixture f;

static int setup(void **state) {
    (void)state;
    memset(&f, 0, sizeof f);
    const char *folder = getenv("TMPDIR");   // a test that is ended leaves its file there, not in the tree
    snprintf(f.log, sizeof f.log, "%s/fake_cuda_XXXXXX", folder ? folder : "/tmp");
    int log = mkstemp(f.log);
    assert_true(log >= 0);
    close(log);
    setenv("FAKE_CUDA_LOG", f.log, 1);
    unsetenv("FAKE_CUDA_FAIL");
    unsetenv("FAKE_CUDA_DEVICES");
    unsetenv("FAKE_CUDA_MAJOR");
    assert_int_equal(tilec_context_create(NULL, &f.context), TILEC_OK);
    size_t size;
    const void *cubin = artefact_bytes(&size);
    assert_int_equal(tilec_artefact_open(f.context, cubin, size, &f.artefact, &f.diagnostics), TILEC_OK);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tilec_diagnostics_destroy(f.diagnostics);
    tilec_unload(f.module);
    tilec_artefact_destroy(f.artefact);
    tilec_context_destroy(f.context);
    unlink(f.log);
    return 0;
}

static void expect_code(int code) {
    TilecDiagnostic d = TILEC_INIT(TilecDiagnostic);
    tilec_diagnostics_get(f.diagnostics, 0, &d);
    assert_int_equal(d.code, code);
}

static void expect_log(const char *want) {
    char text[4096] = "";
    FILE *log = fopen(f.log, "r");
    text[fread(text, 1, sizeof text - 1, log)] = 0;
    fclose(log);
    assert_string_equal(text, want);
}

static void load(void) {
    assert_int_equal(tilec_load(f.artefact, &f.module, &f.diagnostics), TILEC_OK);
}

static TilecStatus launch(const char *name, int64_t n, const TilecLaunch *options) {
    int64_t shape[] = {n};
    static float memory[2][4096];
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory[0], 1, shape), tilec_tensor(TILEC_F32, memory[1], 1, shape)};
    return tilec_launch(f.module, tilec_artefact_find(f.artefact, name), args, 2, options, &f.diagnostics);
}

static void test_launch(void **state) {
    (void)state;
    load();
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    options.stream = (void *)0x50;
    assert_int_equal(launch("copy", 1000, &options), TILEC_OK);
    expect_log("launch grid 4 block 128 shared 2048 stream 50\n");
}

// The map is encoded once for the same arguments, and again for others.
static void test_tensor_map(void **state) {   // covers T0921
    (void)state;
    static _Alignas(256) char memory[4096];
    char want[1024];
    load();
    for (int i = 0; i < 3; i++) {
        int64_t shape[] = {i == 2 ? 200 : 100};
        TilecArg args[] = {tilec_tensor(TILEC_BF16, memory, 1, shape),
                           tilec_tensor(TILEC_F32, memory + 2048, 1, shape)};
        assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "mapped"), args, 2, NULL, NULL),
                         TILEC_OK);
    }
    const char *map = "map type 9 rank 1 box 64 swizzle 3\n";
    const char *launched = "launch grid 1 block 128 shared 0 map %llx of %d attribute 6 1 stream 0\n";
    int at = snprintf(want, sizeof want, "%s", map);
    unsigned long long address = (uintptr_t)memory;
    for (int i = 0; i < 3; i++) {
        if (i == 2) at += snprintf(want + at, sizeof want - (size_t)at, "%s", map);
        at += snprintf(want + at, sizeof want - (size_t)at, launched, address, i == 2 ? 200 : 100);
    }
    expect_log(want);
    int64_t shape[] = {100};
    TilecArg odd[] = {tilec_tensor(TILEC_BF16, memory + 8, 1, shape), tilec_tensor(TILEC_F32, memory + 2048, 1, shape)};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "mapped"), odd, 2, NULL, &f.diagnostics),
                     TILEC_ERROR_SOURCE);
    expect_code(921);
    tilec_diagnostics_destroy(f.diagnostics);
    setenv("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled", 1);
    shape[0] = 300;
    TilecArg args[] = {tilec_tensor(TILEC_BF16, memory, 1, shape), tilec_tensor(TILEC_F32, memory + 2048, 1, shape)};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "mapped"), args, 2, NULL, &f.diagnostics),
                     TILEC_ERROR_DEVICE);
    expect_code(902);
}

// 29 clusters of 4 CTAs have a place on 132 multiprocessors: of more tiles the launch has no cluster, which is no attribute of 1.
static void test_chosen_cluster(void **state) {
    (void)state;
    static _Alignas(256) char memory[4096];
    load();
    for (int64_t n = 3; n <= 135; n += 114) {
        TilecArg y = tilec_tensor(TILEC_F32, memory, 1, &n);
        assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "shared"), &y, 1, NULL, NULL),
                         TILEC_OK);
    }
    expect_log("launch grid 4 block 128 shared 0 attribute 6 1 attribute 4 4 stream 0\n"
               "launch grid 117 block 128 shared 0 attribute 6 1 stream 0\n");
}

// A window of a convolution at every third of 20 pixels, from -2 on: the sixth place is 13, six before the last pixel.
static void test_im2col_map(void **state) {
    (void)state;
    static _Alignas(256) char memory[8192];
    load();
    int64_t shape[] = {2, 20, 64};
    TilecArg args[] = {tilec_tensor(TILEC_BF16, memory, 3, shape), tilec_tensor(TILEC_F32, memory + 6144, 1, shape)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "walked"), args, 2, NULL, NULL),
                         TILEC_OK);
    expect_log("im2col type 9 rank 3 channels 64 pixels 32 corners 2 6 step 3 swizzle 3\n"
               "launch grid 1 block 128 shared 0 stream 0\nlaunch grid 1 block 128 shared 0 stream 0\n");
    shape[1] = 2;   // no place for the window
    TilecArg narrow[] = {tilec_tensor(TILEC_BF16, memory, 3, shape), tilec_tensor(TILEC_F32, memory + 6144, 1, shape)};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "walked"), narrow, 2, NULL, &f.diagnostics),
                     TILEC_ERROR_SOURCE);
    expect_code(921);
}

static void test_workspace(void **state) {
    (void)state;
    size_t bytes = 0;
    int64_t shape[] = {100};
    static float memory[2][100];
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory[0], 1, shape), tilec_tensor(TILEC_F32, memory[1], 1, shape)};
    load();
    assert_int_equal(tilec_workspace_size(f.module, tilec_artefact_find(f.artefact, "twice"), args, 2, &bytes, NULL),
                     TILEC_OK);
    assert_int_equal(bytes, 512);
    const TilecKernel *twice = tilec_artefact_find(f.artefact, "twice");
    assert_int_equal(tilec_workspace_size(f.module, twice, args, 1, &bytes, NULL), TILEC_ERROR_SOURCE);
    assert_int_equal(bytes, 0);
    args[1].shape[0] = 99;
    assert_int_equal(tilec_workspace_size(f.module, twice, args, 2, &bytes, NULL), TILEC_ERROR_SOURCE);
    args[1].rank = -1;
    assert_int_equal(tilec_workspace_size(f.module, twice, args, 2, &bytes, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(launch("twice", 100, NULL), TILEC_OK);
    expect_log("workspace 512\nfill 100 x 3f800000\n"
               "launch grid 1 block 128 shared 2048 stream 0\nlaunch grid 1 block 128 shared 2048 stream 0\n");
}

static void test_own_workspace(void **state) {
    (void)state;
    static _Alignas(256) char memory[512];
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    load();
    options.workspace = memory;
    options.workspace_size = 256;
    assert_int_equal(launch("twice", 100, &options), TILEC_ERROR_SOURCE);
    expect_code(910);   // covers T0910
    tilec_diagnostics_destroy(f.diagnostics);
    options.workspace_size = 512;
    options.workspace = memory + 16;
    assert_int_equal(launch("twice", 100, &options), TILEC_ERROR_USAGE);
    expect_code(932);
    tilec_diagnostics_destroy(f.diagnostics);
    assert_int_equal(launch("copy", 100, &options), TILEC_OK);   // it has no scratch
    options.workspace = memory;
    assert_int_equal(launch("twice", 100, &options), TILEC_OK);
}

static TilecStatus launch_on(uintptr_t stream, int64_t n) {
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    options.stream = (void *)stream;
    return launch("counted", n, &options);
}

// What kernels leave zero is kept with the stream: cleared once, again for a launch that wants more, and for another
// stream.
static void test_zeroed(void **state) {
    (void)state;
    load();
    const struct {
        uintptr_t stream;
        int n;
        const char *before;
    } launches[] = {{0x50, 100, "workspace 4096\nfill 1024 x 0\n"},
                    {0x50, 100, ""},
                    {0x50, 60, ""},
                    {0x51, 60, "workspace 4096\nfill 1024 x 0\n"},
                    {0x50, 61, "workspace 256\n"},   // other scratch, for this launch alone
                    {0x50, 200, ""},
                    {0x50, 1200, "workspace 8192\nfill 2048 x 0\n"},
                    {0x51, 100, ""},
                    {0x50, 1200, ""}};
    char want[2048];
    int at = 0;
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        assert_int_equal(launch_on(launches[i].stream, launches[i].n), TILEC_OK);
        at += snprintf(want + at, sizeof want - (size_t)at, "%s", launches[i].before);
        int blocks = (launches[i].n + 255) / 256;
        at += snprintf(want + at, sizeof want - (size_t)at, "launch grid %d block 128 shared 2048 stream %x\n", blocks,
                       (unsigned)launches[i].stream);
    }
    expect_log(want);
    setenv("FAKE_CUDA_FAIL", "cuMemsetD32Async", 1);
    assert_int_equal(launch_on(0x52, 100), TILEC_ERROR_DEVICE);
    expect_code(902);
    tilec_diagnostics_destroy(f.diagnostics);
    setenv("FAKE_CUDA_FAIL", "cuMemAllocAsync", 1);
    assert_int_equal(launch_on(0x52, 100), TILEC_ERROR_DEVICE);
    expect_code(902);
}

// Of more streams than the module keeps memory for, the last ones clear it for each launch.
static void test_zeroed_of_many(void **state) {
    (void)state;
    load();
    unsetenv("FAKE_CUDA_LOG");
    for (int n = 1; n <= 4; n++)   // each doubles
        for (uintptr_t stream = 0; stream < 100; stream++) assert_int_equal(launch_on(stream, (n + 1) * 512), TILEC_OK);
    setenv("FAKE_CUDA_LOG", f.log, 1);
    assert_int_equal(launch_on(0x63, 4000), TILEC_OK);
    expect_log("workspace 16128\nfill 4000 x 0\nlaunch grid 16 block 128 shared 2048 stream 63\n");
}

// More than there is address space for: refused by the driver, not counted up to.
static void test_zeroed_too_large(void **state) {
    (void)state;
    int64_t shape[] = {INT64_MAX / 16};
    static float memory[1];
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory, 1, shape), tilec_tensor(TILEC_F32, memory, 1, shape)};
    load();
    const TilecKernel *many = tilec_artefact_find(f.artefact, "many");
    assert_int_not_equal(tilec_launch(f.module, many, args, 2, NULL, &f.diagnostics), TILEC_OK);
    expect_code(908);
}

// A captured graph may run on any stream, so each of its launches clears the scratch memory. The same holds for a
// workspace of the caller; memory that the caller declares zero is not cleared.
static void test_zeroed_elsewhere(void **state) {
    (void)state;
    static _Alignas(256) char memory[512], zero[512];
    int64_t shape[] = {61};
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory, 1, shape), tilec_tensor(TILEC_F32, memory + 256, 1, shape)};
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    size_t bytes = 0, zeroed = 0;
    load();
    const TilecKernel *counted = tilec_artefact_find(f.artefact, "counted");
    assert_int_equal(tilec_workspace_size(f.module, counted, args, 2, &bytes, NULL), TILEC_OK);
    assert_int_equal(tilec_zeroed_size(f.module, counted, args, 2, &zeroed, NULL), TILEC_OK);
    assert_int_equal(bytes, 512);
    assert_int_equal(zeroed, 256);
    setenv("FAKE_CUDA_CAPTURING", "1", 1);
    assert_int_equal(launch("counted", 61, &options), TILEC_OK);
    unsetenv("FAKE_CUDA_CAPTURING");
    options.workspace = memory;
    options.workspace_size = 256;
    assert_int_equal(launch("counted", 61, &options), TILEC_ERROR_SOURCE);
    expect_code(910);
    tilec_diagnostics_destroy(f.diagnostics);
    options.workspace_size = 512;
    assert_int_equal(launch("counted", 61, &options), TILEC_OK);
    options.workspace_size = 256;
    options.zeroed = zero;
    options.zeroed_size = 256;
    assert_int_equal(launch("counted", 61, &options), TILEC_OK);
    options.zeroed_size = 255;
    assert_int_equal(launch("counted", 61, &options), TILEC_ERROR_SOURCE);
    expect_code(910);
    tilec_diagnostics_destroy(f.diagnostics);
    options.zeroed_size = 256;
    options.zeroed = zero + 8;
    assert_int_equal(launch("counted", 61, &options), TILEC_ERROR_USAGE);
    expect_code(932);
    tilec_diagnostics_destroy(f.diagnostics);
    options.zeroed = zero;
    options.workspace = NULL;
    assert_int_equal(launch("counted", 61, &options), TILEC_OK);
    const char *ran = "launch grid 1 block 128 shared 2048 stream 0\n";
    char want[1024];
    snprintf(want, sizeof want, "workspace 512\nfill 61 x 0\n%sfill 61 x 0\n%s%sworkspace 256\n%s", ran, ran, ran, ran);
    expect_log(want);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    load();
    assert_int_equal(tilec_launch(f.module, NULL, NULL, 0, NULL, NULL), TILEC_ERROR_USAGE);
    size_t size;
    const void *cubin = artefact_bytes(&size);
    TilecArtefact *other = NULL;
    assert_int_equal(tilec_artefact_open(f.context, cubin, size, &other, NULL), TILEC_OK);
    int64_t shape[] = {10};
    static float memory[2][10];
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory[0], 1, shape), tilec_tensor(TILEC_F32, memory[1], 1, shape)};
    const TilecKernel *stranger = tilec_artefact_find(other, "copy");
    assert_int_equal(tilec_launch(f.module, stranger, args, 2, NULL, NULL), TILEC_ERROR_USAGE);
    tilec_artefact_destroy(other);
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), NULL, 0, NULL, &f.diagnostics),
                     TILEC_ERROR_SOURCE);
    expect_code(904);
    expect_log("");
}

static void test_faults(void **state) {   // covers T0902
    (void)state;
    static const char *const loading[] = {"cuCtxGetCurrent",     "cuDeviceGetAttribute", "cuModuleLoadData",
                                          "cuModuleGetFunction", "cuFuncSetAttribute",   "cuDevicePrimaryCtxRetain"};
    for (size_t i = 0; i < sizeof loading / sizeof loading[0]; i++) {
        setenv("FAKE_CUDA_FAIL", loading[i], 1);
        assert_int_equal(tilec_load(f.artefact, &f.module, &f.diagnostics), TILEC_ERROR_DEVICE);
        assert_null(f.module);
        expect_code(902);
        tilec_diagnostics_destroy(f.diagnostics);
    }
    unsetenv("FAKE_CUDA_FAIL");
    load();
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx", 1);
    assert_int_equal(launch("copy", 10, NULL), TILEC_ERROR_DEVICE);
    expect_code(902);
    tilec_diagnostics_destroy(f.diagnostics);
    setenv("FAKE_CUDA_FAIL", "cuMemAllocAsync", 1);
    assert_int_equal(launch("twice", 10, NULL), TILEC_ERROR_DEVICE);
}

static void test_no_device(void **state) {   // covers T0901
    (void)state;
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    assert_int_equal(tilec_load(f.artefact, &f.module, &f.diagnostics), TILEC_ERROR_ENVIRONMENT);
    expect_code(901);
    tilec_diagnostics_destroy(f.diagnostics);
    setenv("FAKE_CUDA_FAIL", "cuInit", 1);
    assert_int_equal(tilec_load(f.artefact, &f.module, &f.diagnostics), TILEC_ERROR_ENVIRONMENT);
    expect_code(901);
}

static void test_wrong_device(void **state) {   // covers T0920
    (void)state;
    setenv("FAKE_CUDA_MAJOR", "8", 1);
    assert_int_equal(tilec_load(f.artefact, &f.module, &f.diagnostics), TILEC_ERROR_TARGET);
    expect_code(920);
}

// ---- contexts ----

typedef int GetCurrent(void **context);
typedef int SetCurrent(void *context);
typedef void *OwnContext(void);
typedef int Number(void);

static void *driver(const char *name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static void *current_context(void) {
    GetCurrent *get;
    void *found = driver("cuCtxGetCurrent"), *context = NULL;
    memcpy(&get, &found, sizeof get);
    assert_int_equal(get(&context), 0);
    return context;
}

static void set_context(void *context) {
    SetCurrent *set;
    void *found = driver("cuCtxSetCurrent");
    memcpy(&set, &found, sizeof set);
    assert_int_equal(set(context), 0);
}

static void *own_context(void) {
    OwnContext *own;
    void *found = driver("fake_cuda_own");
    memcpy(&own, &found, sizeof own);
    return own();
}

static int number(const char *name) {
    Number *ask;
    void *found = driver(name);
    memcpy(&ask, &found, sizeof ask);
    return ask();
}

static int loaded_modules(void) {
    return number("fake_cuda_modules");
}

// A module that is unloaded takes no other one's context away.
static void test_two_modules(void **state) {
    (void)state;
    load();
    TilecModule *first = f.module;
    load();
    tilec_unload(first);
    assert_int_equal(loaded_modules(), 1);
    assert_int_equal(launch("copy", 10, NULL), TILEC_OK);
    tilec_unload(f.module);
    f.module = NULL;
    assert_null(current_context());
}

// The context that a thread has is its own affair, also while modules of another one are unloaded.
static void test_own_context(void **state) {
    (void)state;
    load();
    set_context(own_context());
    tilec_unload(f.module);
    assert_int_equal(loaded_modules(), 0);
    assert_ptr_equal(current_context(), own_context());
    load();
    assert_int_equal(launch("copy", 10, NULL), TILEC_OK);
    tilec_unload(f.module);
    f.module = NULL;
    assert_ptr_equal(current_context(), own_context());
    set_context(NULL);
}

// A module of a device works in that device's primary context, whatever is current, and what was current stays so.
static void test_load_on(void **state) {
    (void)state;
    void *const befores[] = {NULL, own_context()};
    for (int i = 0; i < 2; i++) {
        set_context(befores[i]);
        assert_int_equal(tilec_load_on(f.artefact, 1, &f.module, &f.diagnostics), TILEC_OK);
        assert_ptr_equal(current_context(), befores[i]);
        assert_int_equal(launch("copy", 10, NULL), TILEC_OK);
        assert_ptr_equal(current_context(), befores[i]);
        setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx", 1);
        assert_int_equal(launch("copy", 10, NULL), TILEC_ERROR_DEVICE);
        assert_ptr_equal(current_context(), befores[i]);
        unsetenv("FAKE_CUDA_FAIL");
        tilec_diagnostics_destroy(f.diagnostics);
        tilec_unload(f.module);
        assert_ptr_equal(current_context(), befores[i]);
        assert_int_equal(loaded_modules(), 0);
    }
    set_context(NULL);
    assert_int_equal(tilec_load_on(f.artefact, TILEC_HOST, &f.module, &f.diagnostics), TILEC_ERROR_USAGE);
    assert_null(f.module);
    assert_int_equal(tilec_load_on(NULL, -1, NULL, NULL), TILEC_ERROR_USAGE);
}

static TilecStatus launch_there(int x_device, int y_device, TilecDiagnostics **diagnostics) {
    static float memory[2][64];
    int64_t shape[] = {64};
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory[0], 1, shape), tilec_tensor(TILEC_F32, memory[1], 1, shape)};
    args[0].device = x_device;
    args[1].device = y_device;
    return tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), args, 2, NULL, diagnostics);
}

static void *launch_in_thread(void *user) {
    (void)user;
    assert_int_equal(launch_there(3, 3, NULL), TILEC_OK);
    return NULL;
}

// A module for all devices loads the code where launches are, a single time for each device.
static void test_load_on_all(void **state) {
    (void)state;
    size_t bytes = 1;
    int64_t shape[] = {64};
    TilecArg on_two[] = {tilec_tensor(TILEC_F32, NULL, 1, shape), tilec_tensor(TILEC_F32, NULL, 1, shape)};
    assert_int_equal(tilec_load_on(f.artefact, TILEC_ANY_DEVICE, &f.module, &f.diagnostics), TILEC_OK);
    assert_int_equal(loaded_modules(), 0);
    static const int devices[][3] = {
        {1, 1, 1}, {0, 0, 2}, {1, 1, 2}, {TILEC_ANY_DEVICE, TILEC_ANY_DEVICE, 2}, {TILEC_ANY_DEVICE, 1, 2}};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        assert_int_equal(launch_there(devices[i][0], devices[i][1], NULL), TILEC_OK);
        assert_int_equal(loaded_modules(), devices[i][2]);
        assert_null(current_context());
    }
    assert_int_equal(launch_there(0, 1, &f.diagnostics), TILEC_ERROR_SOURCE);
    expect_code(931);
    tilec_diagnostics_destroy(f.diagnostics);
    f.diagnostics = NULL;
    on_two[1].device = 2;
    assert_int_equal(tilec_workspace_size(f.module, tilec_artefact_find(f.artefact, "copy"), on_two, 2, &bytes, NULL),
                     TILEC_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(loaded_modules(), 3);
    setenv("FAKE_CUDA_FAIL", "cuModuleLoadData", 1);
    assert_int_equal(launch_there(3, 3, &f.diagnostics), TILEC_ERROR_DEVICE);
    expect_code(902);
    unsetenv("FAKE_CUDA_FAIL");
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, launch_in_thread, NULL), 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    assert_int_equal(loaded_modules(), 4);
    tilec_unload(f.module);
    f.module = NULL;
    assert_int_equal(loaded_modules(), 0);
}

static void test_device(void **state) {
    (void)state;
    TilecDevice device = TILEC_INIT(TilecDevice);
    assert_int_equal(tilec_device(f.context, 0, &device, &f.diagnostics), TILEC_OK);
    assert_string_equal(device.target, "sm_90a");
    assert_int_equal(device.multiprocessors, 132);
    static const char *const calls[] = {"cuDeviceGet", "cuDeviceGetAttribute"};
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_CUDA_FAIL", calls[i], 1);
        assert_int_equal(tilec_device(f.context, 0, &device, NULL), TILEC_ERROR_DEVICE);
    }
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(tilec_device(NULL, 0, &device, NULL), TILEC_ERROR_USAGE);
    TilecDevice unsized = {0};
    assert_int_equal(tilec_device(f.context, 0, &unsized, NULL), TILEC_ERROR_USAGE);
    setenv("FAKE_CUDA_MAJOR", "7", 1);
    assert_int_equal(tilec_device(f.context, 0, &device, &f.diagnostics), TILEC_OK);
    assert_string_equal(device.target, "");
    assert_int_equal(tilec_device(f.context, 0, NULL, &f.diagnostics), TILEC_ERROR_USAGE);
    tilec_diagnostics_destroy(f.diagnostics);
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    assert_int_equal(tilec_device(f.context, 0, &device, &f.diagnostics), TILEC_ERROR_ENVIRONMENT);
}

// One that ended in another thread is current in this one still: it begins again.
static void test_ended_context(void **state) {
    (void)state;
    load();
    void *context = current_context();
    tilec_unload(f.module);
    set_context(context);
    load();
    assert_int_equal(launch("copy", 10, NULL), TILEC_OK);
    tilec_unload(f.module);
    f.module = NULL;
    assert_null(current_context());
}

static void *launch_and_unload(void *status) {
    *(TilecStatus *)status = launch("counted", 10, NULL);
    tilec_unload(f.module);
    f.module = NULL;
    return NULL;
}

// Threads come without a context.
static void test_other_thread(void **state) {
    (void)state;
    TilecStatus status = TILEC_ERROR_INTERNAL;
    pthread_t thread;
    load();
    set_context(NULL);
    assert_int_equal(pthread_create(&thread, NULL, launch_and_unload, &status), 0);
    pthread_join(thread, NULL);
    assert_int_equal(status, TILEC_OK);
    assert_int_equal(loaded_modules(), 0);
}

// ---- memory ----

typedef struct Counting {
    long requests, refuse;   // that one is refused
} Counting;

static void *counting_resize(void *user, void *block, size_t bytes) {
    Counting *counting = user;
    if (bytes && ++counting->requests == counting->refuse) return NULL;
    if (bytes) return realloc(block, bytes);
    free(block);
    return NULL;
}

// Opens, loads and launches with an allocator that refuses one request. Nothing of it is left at the driver.
static void launch_refusing(Counting *counting) {
    const TilecAllocator allocator = {sizeof allocator, counting_resize, counting};
    size_t size;
    const void *cubin = artefact_bytes(&size);
    TilecContext *context;
    TilecArtefact *artefact = NULL;
    TilecModule *module = NULL;
    int64_t shape[] = {100};
    static float memory[2][100];
    TilecArg args[] = {tilec_tensor(TILEC_F32, memory[0], 1, shape), tilec_tensor(TILEC_F32, memory[1], 1, shape)};
    int pooled = number("fake_cuda_pooled");
    if (tilec_context_create(&allocator, &context) != TILEC_OK) return;
    TilecStatus status = tilec_artefact_open(context, cubin, size, &artefact, NULL);
    if (status == TILEC_OK) status = tilec_load(artefact, &module, NULL);
    if (status == TILEC_OK) status = tilec_launch(module, tilec_artefact_find(artefact, "long"), args, 2, NULL, NULL);
    assert_int_equal(status, counting->refuse ? TILEC_ERROR_ENVIRONMENT : TILEC_OK);
    tilec_unload(module);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
    assert_int_equal(loaded_modules(), 0);
    assert_int_equal(number("fake_cuda_pooled"), pooled);
    assert_null(current_context());
}

// What no program may pass: an error of use, and the driver sees nothing of it.
static void test_misuse(void **state) {
    (void)state;
    int64_t shape[] = {10, 1, 1, 1, 1, 1, 1, 1, 1};
    static float memory[64];
    TilecArg args[4097] = {tilec_tensor(TILEC_F32, memory, 1, shape), tilec_tensor(TILEC_F32, memory, 1, shape)},
             *none = NULL;
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    size_t bytes;
    load();
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy");
    assert_int_equal(tilec_load(f.artefact, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_launch(NULL, copy, args, 2, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_launch(f.module, NULL, args, 2, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_launch(f.module, copy, none, 2, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_launch(f.module, copy, args, 4097, NULL, NULL), TILEC_ERROR_USAGE);
    options.size = sizeof options.size - 1;
    assert_int_equal(tilec_launch(f.module, copy, args, 2, &options, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_workspace_size(f.module, copy, args, 2, NULL, &f.diagnostics), TILEC_ERROR_USAGE);
    tilec_diagnostics_destroy(f.diagnostics);
    assert_int_equal(tilec_zeroed_size(f.module, copy, args, 4097, &bytes, NULL), TILEC_ERROR_USAGE);
    args[1].rank = -1;
    assert_int_equal(tilec_launch(f.module, copy, args, 2, NULL, NULL), TILEC_ERROR_USAGE);
    args[1] = tilec_tensor(TILEC_F32, memory, TILEC_MAX_RANK + 1, shape);
    assert_int_equal(tilec_launch(f.module, copy, args, 2, NULL, NULL), TILEC_ERROR_USAGE);
    expect_log("");
    args[1] = tilec_tensor(TILEC_F32, memory, 1, shape);
    args[0] = tilec_real(1);
    assert_int_equal(tilec_launch(f.module, copy, args, 2, NULL, &f.diagnostics), TILEC_ERROR_SOURCE);
    expect_code(905);
    args[0] = tilec_tensor(TILEC_F32, memory + 32, 1, shape);
    options = (TilecLaunch)TILEC_INIT(TilecLaunch);
    options.size = offsetof(TilecLaunch, workspace);   // of a host that knows the stream alone
    options.workspace = (void *)1;
    assert_int_equal(tilec_launch(f.module, copy, args, 2, &options, NULL), TILEC_OK);
}

// A failing call says why, whatever is wrong with it.
static void test_texts(void **state) {
    (void)state;
    load();
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy");
    assert_int_equal(tilec_launch(f.module, copy, NULL, 2, NULL, &f.diagnostics), TILEC_ERROR_USAGE);   // covers T0932
    expect_code(932);
    tilec_diagnostics_destroy(f.diagnostics);
    TilecArg bare = {.kind = TILEC_TENSOR};
    assert_int_equal(tilec_launch(f.module, copy, &bare, 1, NULL, &f.diagnostics), TILEC_ERROR_USAGE);
    assert_non_null(strstr(tilec_diagnostics_text(f.diagnostics), "tilec_tensor"));
    tilec_diagnostics_destroy(f.diagnostics);
    assert_int_equal(tilec_load(NULL, NULL, &f.diagnostics), TILEC_ERROR_USAGE);
    expect_code(932);
}

static void expect_text(TilecStatus status) {
    assert_int_not_equal(status, TILEC_OK);
    assert_true(tilec_diagnostics_text(f.diagnostics)[0] != 0);
    tilec_diagnostics_destroy(f.diagnostics);
    f.diagnostics = NULL;
}

// So does each function that has diagnostics.
static void test_texts_of_all(void **state) {
    (void)state;
    TilecDiagnostics **said = &f.diagnostics;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecDevice device = TILEC_INIT(TilecDevice);
    TilecSelection selection = TILEC_INIT(TilecSelection);
    TilecArtefact *artefact;
    TilecModule *module;
    size_t bytes;
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy");
    expect_text(tilec_compile(f.context, NULL, "", 0, &options, &artefact, said));
    expect_text(tilec_compile(NULL, "a", "", 0, &options, &artefact, said));
    expect_text(tilec_compile_for(f.context, "a", "", 0, &options, NULL, NULL, 0, &artefact, said));
    expect_text(tilec_emulate(f.context, "a", "", 0, &options, NULL, NULL, 0, NULL, said));
    expect_text(tilec_artefact_open(f.context, "no cubin", 8, &artefact, said));
    expect_text(tilec_artefact_open(NULL, "no cubin", 8, &artefact, said));
    setenv("FAKE_CUDA_FAIL", "cuDeviceGet", 1);
    expect_text(tilec_load_on(f.artefact, 99, &module, said));
    expect_text(tilec_device(f.context, 99, &device, said));
    unsetenv("FAKE_CUDA_FAIL");
    expect_text(tilec_load_on(NULL, 0, &module, said));
    expect_text(tilec_device(NULL, 0, &device, said));
    load();
    expect_text(tilec_launch(f.module, copy, NULL, 0, NULL, said));
    expect_text(tilec_launch(NULL, copy, NULL, 0, NULL, said));
    expect_text(tilec_workspace_size(f.module, copy, NULL, 0, &bytes, said));
    expect_text(tilec_workspace_size(NULL, copy, NULL, 0, &bytes, said));
    expect_text(tilec_zeroed_size(f.module, copy, NULL, 0, &bytes, said));
    expect_text(tilec_zeroed_size(NULL, copy, NULL, 0, &bytes, said));
    expect_text(tilec_select(f.artefact, copy, NULL, 0, 132, &selection, said));
    expect_text(tilec_select(NULL, copy, NULL, 0, 132, &selection, said));
    int64_t shape[] = {8};
    TilecArg args[] = {tilec_tensor(TILEC_F32, NULL, 1, shape), tilec_tensor(TILEC_F32, NULL, 1, shape)};
    expect_text(tilec_select(f.artefact, copy, args, 2, 0, &selection, said));
}

static void refuse(TilecArg x, TilecArg y, int code) {
    TilecArg args[] = {x, y};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), args, 2, NULL, &f.diagnostics),
                     TILEC_ERROR_SOURCE);
    expect_code(code);
    tilec_diagnostics_destroy(f.diagnostics);
    f.diagnostics = NULL;
}

static float memory_x[64], memory_y[64];

static void test_types(void **state) {
    (void)state;
    int64_t shape[] = {10}, none[] = {0};
    load();
    TilecArg x = tilec_tensor(TILEC_F32, memory_x, 1, shape), y = tilec_tensor(TILEC_F32, memory_y, 1, shape);
    refuse(tilec_tensor(TILEC_BF16, memory_x, 1, shape), y, 929);   // covers T0929
    refuse(tilec_tensor(TILEC_I32, memory_x, 1, shape), y, 929);
    refuse(x, tilec_tensor(TILEC_UNKNOWN_TYPE, memory_y, 1, shape), 929);
    refuse(x, tilec_tensor(TILEC_F32, NULL, 1, shape), 930);   // covers T0930
    refuse(x, tilec_tensor(TILEC_F32, (char *)memory_y + 2, 1, shape), 930);
    y.device = 1;
    refuse(x, y, 931);   // covers T0931
    y.device = TILEC_HOST;
    refuse(x, y, 931);
    expect_log("");
    TilecArg empty[] = {tilec_tensor(TILEC_F32, NULL, 1, none), tilec_tensor(TILEC_F32, NULL, 1, none)};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), empty, 2, NULL, NULL), TILEC_OK);
}

// As dlpack.h has it.
typedef struct Tensor {
    void *data;
    int32_t kind, index, rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

static TilecArg from_dlpack(Tensor tensor) {
    return tilec_dlpack((const struct DLTensor *)&tensor);
}

static void test_dlpack(void **state) {
    (void)state;
    int64_t shape[] = {10}, strides[] = {2};
    load();
    Tensor x = {memory_x, 2, 0, 1, 2, 32, 1, shape, NULL, 8};
    TilecArg arg = from_dlpack(x), y = tilec_tensor(TILEC_F32, memory_y, 1, shape);
    assert_ptr_equal(arg.data, memory_x + 2);
    assert_int_equal(arg.type, TILEC_F32);
    assert_int_equal(arg.strides[0], 1);
    TilecArg args[] = {arg, y};
    assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), args, 2, NULL, NULL), TILEC_OK);
    x.strides = strides;
    assert_int_equal(from_dlpack(x).strides[0], 2);
    x.strides = NULL;
    x.bits = 16;
    refuse(from_dlpack(x), y, 929);
    x.code = 4;
    assert_int_equal(from_dlpack(x).type, TILEC_BF16);
    x.lanes = 2;
    assert_int_equal(from_dlpack(x).type, TILEC_UNKNOWN_TYPE);
    x = (Tensor){memory_x, 1, 0, 1, 2, 32, 1, shape, NULL, 0};
    refuse(from_dlpack(x), y, 931);   // in memory of the CPU
    x.kind = 10;
    assert_int_equal(from_dlpack(x).device, TILEC_OTHER_DEVICE);   // ROCm's
    refuse(from_dlpack(x), y, 931);
    x.kind = 2;
    x.index = 3;
    refuse(from_dlpack(x), y, 931);
    assert_int_equal(tilec_dlpack(NULL).size, 0);
    static const int anywhere[] = {3, 13};   // pinned and managed memory
    for (int i = 0; i < 2; i++) {
        x.kind = anywhere[i];
        assert_int_equal(from_dlpack(x).device, TILEC_ANY_DEVICE);
        args[0] = from_dlpack(x);
        assert_int_equal(tilec_launch(f.module, tilec_artefact_find(f.artefact, "copy"), args, 2, NULL, NULL),
                         TILEC_OK);
    }
    x.code = 17;
    assert_int_equal(from_dlpack(x).type, TILEC_UNKNOWN_TYPE);
    x.data = NULL;
    assert_null(from_dlpack(x).data);   // the offset of nothing is nothing
}

// Arguments that only a wrong cast or another header makes.
static void test_misshapen(void **state) {
    (void)state;
    int64_t shape[] = {10}, far[] = {INT64_MAX / 2};
    load();
    TilecArg x = tilec_tensor(TILEC_F32, memory_x, 1, shape), y = tilec_tensor(TILEC_F32, memory_y, 1, shape), bad = x;
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy");
    bad.kind = (TilecArgKind)7;
    TilecArg rows[][2] = {{x, bad}, {x, y}, {x, y}, {x, tilec_integer(3)}, {tilec_real(1), y}};
    rows[1][1].size -= 8;
    rows[2][1].rank = 9;
    static const int status[] = {TILEC_ERROR_USAGE, TILEC_ERROR_USAGE, TILEC_ERROR_USAGE, TILEC_ERROR_SOURCE,
                                 TILEC_ERROR_SOURCE};
    static const int codes[] = {932, 932, 932, 905, 905};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tilec_launch(f.module, copy, rows[i], 2, NULL, &f.diagnostics), status[i]);
        expect_code(codes[i]);
        tilec_diagnostics_destroy(f.diagnostics);
    }
    TilecArg strided[] = {tilec_strided_tensor(TILEC_F32, memory_x, 1, shape, far), y};
    assert_int_equal(tilec_launch(f.module, copy, strided, 2, NULL, &f.diagnostics), TILEC_ERROR_SOURCE);
    tilec_diagnostics_destroy(f.diagnostics);
    shape[0] = -1;
    TilecArg negative[] = {tilec_tensor(TILEC_F32, memory_x, 1, shape), tilec_tensor(TILEC_F32, memory_y, 1, shape)};
    assert_int_equal(tilec_launch(f.module, copy, negative, 2, NULL, &f.diagnostics), TILEC_ERROR_SOURCE);
    expect_log("");
}

// Scratch from the host's allocator, given back after the launch.
static void *take_memory(void *user, size_t bytes, void *stream) {
    static _Alignas(256) char memory[1024];
    int *held = user;
    assert_ptr_equal(stream, (void *)0x70);
    assert_int_equal(bytes, 512);
    return *held < 0 ? NULL : (++*held, memory + (*held > 100 ? 8 : 0));
}

static void give_memory(void *user, void *memory, void *stream) {
    int *held = user;
    assert_ptr_equal(stream, (void *)0x70);
    assert_non_null(memory);
    --*held;
}

static void test_allocator(void **state) {
    (void)state;
    int held = 0;
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    load();
    options.stream = (void *)0x70;
    options.allocate = take_memory;
    options.allocate_user = &held;
    assert_int_equal(launch("twice", 100, &options), TILEC_ERROR_USAGE);   // without `release`
    tilec_diagnostics_destroy(f.diagnostics);
    options.release = give_memory;
    assert_int_equal(launch("twice", 100, &options), TILEC_OK);
    assert_int_equal(held, 0);
    held = -1;
    assert_int_equal(launch("twice", 100, &options), TILEC_ERROR_SOURCE);
    expect_code(910);
    tilec_diagnostics_destroy(f.diagnostics);
    held = 100;   // memory that is not aligned is given back, too
    assert_int_equal(launch("twice", 100, &options), TILEC_ERROR_USAGE);
    expect_code(932);
    assert_int_equal(held, 100);
}

static void test_select(void **state) {
    (void)state;
    int64_t shape[] = {1000};
    TilecArg args[] = {tilec_tensor(TILEC_F32, NULL, 1, shape), tilec_tensor(TILEC_F32, NULL, 1, shape)};
    TilecSelection out = TILEC_INIT(TilecSelection);
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy"),
                      *twice = tilec_artefact_find(f.artefact, "twice");
    assert_int_equal(tilec_select(f.artefact, copy, args, 2, 132, &out, NULL), TILEC_OK);
    assert_string_equal(out.symbol, "copy");
    assert_int_equal(out.grid, 4);
    assert_int_equal(out.threads, 128);
    assert_int_equal(out.shared_bytes, 2048);
    assert_int_equal(out.launches, 1);
    assert_int_equal(tilec_select(f.artefact, twice, args, 2, 132, &out, NULL), TILEC_OK);
    assert_int_equal(out.launches, 3);
    assert_int_equal(out.workspace, 4096);
    args[0].type = TILEC_F64;
    assert_int_equal(tilec_select(f.artefact, copy, args, 2, 132, &out, &f.diagnostics), TILEC_ERROR_SOURCE);
    expect_code(929);
    tilec_diagnostics_destroy(f.diagnostics);
    out.size = 0;
    assert_int_equal(tilec_select(f.artefact, copy, args, 2, 132, &out, &f.diagnostics), TILEC_ERROR_USAGE);
    tilec_diagnostics_destroy(f.diagnostics);
    assert_int_equal(tilec_select(f.artefact, copy, args, 2, 132, NULL, &f.diagnostics), TILEC_ERROR_USAGE);
    tilec_diagnostics_destroy(f.diagnostics);
    assert_int_equal(tilec_select(NULL, copy, args, 2, 132, &out, &f.diagnostics), TILEC_ERROR_USAGE);
}

static void test_names(void **state) {
    (void)state;
    TilecVariant variant = TILEC_INIT(TilecVariant);
    TilecArtefact *other;
    const TilecKernel *copy = tilec_artefact_find(f.artefact, "copy"),
                      *twice = tilec_artefact_find(f.artefact, "twice");
    assert_string_equal(tilec_kernel_name(copy), "copy");
    assert_string_equal(tilec_kernel_name(NULL), "");
    assert_true(tilec_kernel_is_program(twice) && !tilec_kernel_is_program(copy) && !tilec_kernel_is_program(NULL));
    assert_true(tilec_kernel_variant(twice, 0, &variant));
    assert_string_equal(variant.symbol, "");   // a program has no code of its own
    assert_int_equal(variant.registers, -1);
    assert_int_equal(tilec_artefact_open(NULL, "", 0, &other, NULL), TILEC_ERROR_USAGE);
    static const char *const texts[] = {"ok",
                                        "the source, an argument or a test is wrong",
                                        "wrong use",
                                        "something outside is missing",
                                        "does not fit the target",
                                        "device fault"};
    static const TilecStatus statuses[] = {TILEC_OK,           TILEC_ERROR_SOURCE,
                                           TILEC_ERROR_USAGE,  TILEC_ERROR_ENVIRONMENT,
                                           TILEC_ERROR_TARGET, TILEC_ERROR_DEVICE};
    for (int i = 0; i < 6; i++) assert_string_equal(tilec_status_text(statuses[i]), texts[i]);
    assert_string_equal(tilec_status_text(TILEC_ERROR_INTERNAL), "internal error");
}

static void test_no_memory(void **state) {
    (void)state;
    Counting all = {0};
    launch_refusing(&all);
    for (long n = 1; n <= all.requests; n++) {
        Counting counting = {.refuse = n};
        launch_refusing(&counting);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_launch),
                                       TEST(test_tensor_map),
                                       TEST(test_im2col_map),
                                       TEST(test_chosen_cluster),
                                       TEST(test_workspace),
                                       TEST(test_own_workspace),
                                       TEST(test_wrong_arguments),
                                       TEST(test_faults),
                                       TEST(test_no_device),
                                       TEST(test_wrong_device),
                                       TEST(test_zeroed),
                                       TEST(test_zeroed_of_many),
                                       TEST(test_zeroed_too_large),
                                       TEST(test_zeroed_elsewhere),
                                       TEST(test_two_modules),
                                       TEST(test_own_context),
                                       TEST(test_load_on),
                                       TEST(test_load_on_all),
                                       TEST(test_device),
                                       TEST(test_ended_context),
                                       TEST(test_other_thread),
                                       TEST(test_misuse),
                                       TEST(test_texts_of_all),
                                       TEST(test_names),
                                       TEST(test_no_memory),
                                       TEST(test_texts),
                                       TEST(test_types),
                                       TEST(test_dlpack),
                                       TEST(test_misshapen),
                                       TEST(test_allocator),
                                       TEST(test_select)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
