// tilec._tilec: libtilec for Python, by the stable ABI (one module for all versions from 3.9 on).
//
//     objects of Python --read_tensor--> TilecArg --Launcher--> tilec_launch       what takes a microsecond
//                                                 --_call----> python/tilec/       all else: outputs, compiles, the emulator
//
// A tensor is read by the first of these that its type has: DLPack's C exchange API (no call of Python, no copy, the
// current stream), `__array_struct__` (NumPy), `__dlpack__` (any framework).
//
// A Launcher holds the specializations of a kernel that are loaded: a device, the compile-time values that the arguments
// have to show, a module. A call that fits one is a launch; any other goes to the method `_call` of the class in Python,
// which compiles, adds a specialization, and launches again. A specialization may be for one launch alone
// (tilec_compile_for): then all that the choice of a variant depends on has to be the same.
//
// The state of the module is static: libtilec's context, and what is looked up once. It serves one interpreter.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include "runtime/api/dlpack.h"
#include <Python.h>
#include <stdbool.h>
#include <string.h>
#include <tilec/tilec.h>

enum { MOST_ARGS = 128, MOST_TYPES = 16, MOST_CHECKS = 32 };

// ---- DLPack (dlpack.h, version 1) ----

enum { DL_MAJOR = 1, DL_READ_ONLY = 1 };

typedef struct DLVersion {
    uint32_t major, minor;
} DLVersion;

typedef struct DLManagedTensor {
    DLVersion version;
    void *manager;
    void (*deleter)(struct DLManagedTensor *self);
    uint64_t flags;
    struct DLTensor tensor;
} DLManagedTensor;

typedef struct ExchangeApi {
    DLVersion version;
    const struct ExchangeApi *before;
    void *allocate, *managed_from_object, *managed_to_object;   // not called here
    int (*tensor_from_object)(void *object, struct DLTensor *out);
    int (*current_stream)(int kind, int32_t index, void **out);
} ExchangeApi;

// ---- state ----

typedef struct KnownType {
    PyObject *type;
    const ExchangeApi *exchange;   // NULL: it has none
    PyObject *is_negated;   // method of PyTorch: memory has the negated numbers, which no exchange says; NULL: has none
} KnownType;

static struct {
    TilecContext *context;
    PyObject *error;               // tilec.Error
    PyTypeObject *diagnostic;      // tilec.Diagnostic
    PyObject *log;                 // takes (what, line); NULL: it is not heard
    KnownType known[MOST_TYPES];   // types of tensors
    int known_count;
} state;

// ---- diagnostics ----

static const char *const severities[] = {"error", "warning", "remark"};

static PyObject *diagnostic_object(const TilecDiagnostic *d) {
    PyObject *out = PyStructSequence_New(state.diagnostic);
    if (!out) return NULL;
    PyObject *items[] = {PyUnicode_FromFormat("T%04d", d->code),
                         PyUnicode_FromString(severities[d->severity]),
                         PyUnicode_DecodeUTF8(d->file, (Py_ssize_t)strlen(d->file), "replace"),
                         PyLong_FromLong(d->line),
                         PyLong_FromLong(d->column),
                         PyLong_FromLong(d->end_line),
                         PyLong_FromLong(d->end_column),
                         PyUnicode_DecodeUTF8(d->message, (Py_ssize_t)strlen(d->message), "replace"),
                         PyUnicode_DecodeUTF8(d->remedy, (Py_ssize_t)strlen(d->remedy), "replace")};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) PyStructSequence_SetItem(out, (Py_ssize_t)i, items[i]);
    return out;
}

static PyObject *diagnostic_objects(const TilecDiagnostics *diagnostics) {
    TilecDiagnostic d = TILEC_INIT(TilecDiagnostic);
    PyObject *out = PyTuple_New((Py_ssize_t)tilec_diagnostics_count(diagnostics));
    for (size_t i = 0; out && tilec_diagnostics_get(diagnostics, i, &d); i++) {
        PyObject *item = diagnostic_object(&d);
        if (!item) return Py_DECREF(out), NULL;
        PyTuple_SetItem(out, (Py_ssize_t)i, item);
    }
    return out;
}

// Raises tilec.Error; an exception that a callback has raised stays. Frees the diagnostics.
static void raise_status(TilecStatus status, TilecDiagnostics *diagnostics) {
    const char *text = tilec_diagnostics_text(diagnostics);
    if (!PyErr_Occurred()) {
        size_t length = strlen(text);
        while (length && text[length - 1] == '\n') length--;
        PyObject *message = length ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace")
                                   : PyUnicode_FromString(tilec_status_text(status));
        PyObject *error = message ? PyObject_CallFunctionObjArgs(state.error, message, NULL) : NULL;
        PyObject *list = diagnostic_objects(diagnostics), *number = PyLong_FromLong(status);
        if (error && list && number) {
            PyObject_SetAttrString(error, "diagnostics", list);
            PyObject_SetAttrString(error, "status", number);
            PyErr_SetObject(state.error, error);
        }
        Py_XDECREF(message);
        Py_XDECREF(error);
        Py_XDECREF(list);
        Py_XDECREF(number);
    }
    tilec_diagnostics_destroy(diagnostics);
}

// Asked while a process compiles, without the lock of the interpreter: Ctrl-C ends the compile.
static bool interrupted(void *user) {
    (void)user;
    PyGILState_STATE lock = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() != 0;
    PyGILState_Release(lock);
    return stop;
}

// A line of a call's log, also without the lock of the interpreter. `what`: "compile" or "emulate".
static void log_line(void *what, const char *line) {
    if (!state.log) return;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace");
    PyObject *done = text ? PyObject_CallFunction(state.log, "sO", (const char *)what, text) : NULL;
    if (!done) PyErr_WriteUnraisable(state.log);
    Py_XDECREF(done);
    Py_XDECREF(text);
    PyGILState_Release(lock);
}

// log_to(function): of (what, line)
static PyObject *log_to(PyObject *self, PyObject *function) {
    (void)self;
    Py_INCREF(function);
    Py_XDECREF(state.log);
    state.log = function;
    Py_RETURN_NONE;
}

// ---- tensors ----

typedef struct Reading {   // what was read, until it is released
    TilecArg args[MOST_ARGS];
    bool read_only[MOST_ARGS];
    int count;
    int device;                    // of the first tensor on a CUDA device; TILEC_HOST: none is on one
    const ExchangeApi *exchange;   // of that tensor; NULL: it has none
    PyObject *held[MOST_ARGS];     // capsules that own what `args` points to
    int held_count;
    long long stream;   // for producers that synchronize: DLPack's number of the stream that reads
} Reading;

static void release(Reading *r) {
    for (int i = 0; i < r->held_count; i++) Py_DECREF(r->held[i]);
    r->held_count = 0;
}

static const ExchangeApi *exchange_of_type(PyObject *type) {
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const ExchangeApi *api = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    while (api && api->version.major > DL_MAJOR) api = api->before;
    return api && api->version.major == DL_MAJOR && api->tensor_from_object ? api : NULL;
}

static KnownType type_of(PyObject *object) {
    PyObject *type = (PyObject *)Py_TYPE(object);
    for (int i = 0; i < state.known_count; i++)
        if (state.known[i].type == type) return state.known[i];
    KnownType known = {.type = type, .exchange = exchange_of_type(type)};
    if (known.exchange) known.is_negated = PyObject_GetAttrString(type, "is_neg");
    PyErr_Clear();
    if (state.known_count == MOST_TYPES) {   // the least of the costs: they are looked up again
        Py_CLEAR(state.known[--state.known_count].is_negated);
        Py_DECREF(state.known[state.known_count].type);
    }
    Py_INCREF(type);
    state.known[state.known_count++] = known;
    return known;
}

static bool refuse_negated(PyObject *object, PyObject *is_negated, const char *name) {
    Py_INCREF(is_negated);
    PyObject *answer = PyObject_CallFunctionObjArgs(is_negated, object, NULL);
    Py_DECREF(is_negated);
    if (answer == Py_True) PyErr_Format(PyExc_ValueError, "'%s' has the negative bit: pass x.resolve_neg()", name);
    Py_XDECREF(answer);
    return !PyErr_Occurred();
}

static bool take_dlpack(const struct DLTensor *tensor, const char *name, TilecArg *out) {
    if (tensor->rank > TILEC_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "'%s' has more than %d dimensions", name, TILEC_MAX_RANK);
        return false;
    }
    *out = tilec_dlpack(tensor);
    return true;
}

// PyArrayInterface of NumPy, which `__array_struct__` gives.
typedef struct ArrayStruct {
    int two, rank;
    char kind;
    int width, flags;
    Py_ssize_t *shape, *strides;   // strides in bytes
    void *data;
} ArrayStruct;

enum { ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };

static TilecType other_array_type(PyObject *object) {   // ml_dtypes
    static const struct {
        const char *name;
        TilecType type;
    } others[] = {{"bfloat16", TILEC_BF16}, {"float8_e4m3fn", TILEC_E4M3}, {"float8_e5m2", TILEC_E5M2}};
    TilecType type = TILEC_UNKNOWN_TYPE;
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    for (size_t i = 0; name && i < sizeof others / sizeof *others; i++)
        if (PyUnicode_CompareWithASCIIString(name, others[i].name) == 0) type = others[i].type;
    Py_XDECREF(dtype);
    Py_XDECREF(name);
    PyErr_Clear();
    return type;
}

static TilecType array_type(PyObject *object, const ArrayStruct *array) {
    static const struct {
        char kind;
        int width;
        TilecType type;
    } types[] = {{'b', 1, TILEC_BOOL}, {'i', 1, TILEC_I8},  {'i', 2, TILEC_I16}, {'i', 4, TILEC_I32},
                 {'i', 8, TILEC_I64},  {'u', 1, TILEC_U8},  {'u', 2, TILEC_U16}, {'u', 4, TILEC_U32},
                 {'u', 8, TILEC_U64},  {'f', 2, TILEC_F16}, {'f', 4, TILEC_F32}, {'f', 8, TILEC_F64}};
    if (array->kind == 'V') return other_array_type(object);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].kind == array->kind && types[i].width == array->width) return types[i].type;
    return TILEC_UNKNOWN_TYPE;
}

static bool take_array(PyObject *object, const ArrayStruct *array, const char *name, TilecArg *out, bool *read_only) {
    int64_t shape[TILEC_MAX_RANK], strides[TILEC_MAX_RANK];
    const char *fault = array->two != 2                                        ? "has another form of __array_struct__"
                        : array->rank > TILEC_MAX_RANK                         ? "has more than 8 dimensions"
                        : !(array->flags & ARRAY_NATIVE) && array->kind != 'V' ? "has swapped bytes"
                                                                               : NULL;
    for (int d = 0; !fault && d < array->rank; d++) {
        shape[d] = array->shape[d];
        strides[d] = array->strides[d] / (array->width ? array->width : 1);
        if (array->width && array->strides[d] % array->width) fault = "has strides that are no multiples of an element";
    }
    if (fault) {
        PyErr_Format(PyExc_ValueError, "'%s' %s", name, fault);
        return false;
    }
    *out = tilec_strided_tensor(array_type(object, array), array->data, array->rank, shape, strides);
    out->device = TILEC_HOST;
    *read_only = !(array->flags & ARRAY_WRITEABLE);
    return true;
}

// The capsule of `__dlpack__`; its kinds of arguments depend on the age of the producer.
static PyObject *dlpack_capsule(PyObject *object, long long stream) {
    PyObject *place = PyObject_CallMethod(object, "__dlpack_device__", NULL), *capsule = NULL, *keywords = NULL;
    int kind = 0, index = 0;
    if (!place || !PyArg_ParseTuple(place, "ii", &kind, &index)) goto end;
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0);
    for (int age = 0; method && none && !capsule && age < 2; age++) {
        keywords = age == 0 ? Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, 1) : PyDict_New();
        PyObject *number = keywords && kind == DL_CUDA ? PyLong_FromLongLong(stream) : NULL;
        if (number) PyDict_SetItemString(keywords, "stream", number);
        Py_XDECREF(number);
        capsule = keywords ? PyObject_Call(method, none, keywords) : NULL;
        Py_CLEAR(keywords);
        if (capsule || age == 1 || !PyErr_ExceptionMatches(PyExc_TypeError)) break;
        PyErr_Clear();
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
end:
    Py_XDECREF(place);
    return capsule;
}

static bool take_capsule(PyObject *capsule, const char *name, TilecArg *out, bool *read_only) {
    if (PyCapsule_IsValid(capsule, "dltensor"))
        return take_dlpack(PyCapsule_GetPointer(capsule, "dltensor"), name, out);
    const DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (!managed) return false;
    if (managed->version.major != DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "'%s' is of another version of DLPack", name);
        return false;
    }
    *read_only = managed->flags & DL_READ_ONLY;
    return take_dlpack(&managed->tensor, name, out);
}

// NULL without an exception: the object has no such attribute.
static PyObject *attribute(PyObject *object, const char *name) {
    PyObject *out = PyObject_GetAttrString(object, name);
    if (!out && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return out;
}

static bool read_tensor(PyObject *object, const char *name, Reading *r) {
    TilecArg *out = &r->args[r->count];
    bool *read_only = &r->read_only[r->count];
    struct DLTensor tensor;
    const KnownType type = type_of(object);
    const ExchangeApi *exchange = type.exchange;
    *read_only = false;
    if (exchange) {
        if (exchange->tensor_from_object(object, &tensor) || !take_dlpack(&tensor, name, out)) return false;
        if (type.is_negated && !refuse_negated(object, type.is_negated, name)) return false;
    } else {
        PyObject *array = attribute(object, "__array_struct__");
        PyObject *dlpack = array || PyErr_Occurred() ? NULL : attribute(object, "__dlpack__");
        if (!array && !dlpack && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "'%s' is a tensor, not %R: it needs __dlpack__ or __array_struct__", name,
                         (PyObject *)Py_TYPE(object));
        PyObject *held = array ? array : dlpack ? dlpack_capsule(object, r->stream) : NULL;
        Py_XDECREF(dlpack);
        if (!held) return false;
        r->held[r->held_count++] = held;
        if (array) {
            const ArrayStruct *view = PyCapsule_GetPointer(array, NULL);
            if (!view || !take_array(object, view, name, out, read_only)) return false;
        } else if (!take_capsule(held, name, out, read_only)) return false;
    }
    r->count++;
    if (out->device < 0 || r->device >= 0) return true;
    r->device = out->device;
    r->exchange = exchange;
    return true;
}

// Whether a u64 is asked for is known but for a type that is a compile-time name.
static long long integer_of(PyObject *object, char kind, const char *name) {
    int overflow = 0;
    PyObject *index = PyNumber_Index(object);
    long long value = index ? PyLong_AsLongLongAndOverflow(index, &overflow) : 0;
    if (overflow > 0 && kind != 'i') value = (long long)PyLong_AsUnsignedLongLong(index);
    else if (overflow) PyErr_Format(PyExc_OverflowError, "'%s' is %R, which no i64 can hold", name, index);
    Py_XDECREF(index);
    return value;
}

// A bool, a number, of which the launch takes 0 and 1, or what has a bool as `item()`, as NumPy's.
static long long truth_of(PyObject *object, const char *name) {
    if (PyBool_Check(object)) return object == Py_True;
    PyObject *item = PyIndex_Check(object) ? NULL : PyObject_CallMethod(object, "item", NULL);
    long long value = item && PyBool_Check(item) ? item == Py_True : 0;
    if (!PyIndex_Check(object) && (!item || !PyBool_Check(item))) PyErr_SetNone(PyExc_TypeError);
    Py_XDECREF(item);
    return PyIndex_Check(object) ? integer_of(object, 'i', name) : value;
}

static TilecArg number_of(PyObject *object, char kind, const char *name) {
    if (kind == 'b') return tilec_integer(truth_of(object, name));
    bool is_real = kind == 'f' || (kind == 'n' && !PyIndex_Check(object));
    return is_real ? tilec_real(PyFloat_AsDouble(object)) : tilec_integer(integer_of(object, kind, name));
}

// Of a scalar parameter: 'i', 'u' (u64), 'f', 'b', or 'n' where its type is a compile-time name.
static bool read_scalar(PyObject *object, const char *name, char kind, Reading *r) {
    TilecArg *out = &r->args[r->count++];
    *out = number_of(object, kind, name);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "'%s' is %s, not %R", name,
                     kind == 'i' || kind == 'u' ? "an integer"
                     : kind == 'b'              ? "a bool"
                                                : "a number",
                     (PyObject *)Py_TYPE(object));
    return !PyErr_Occurred();
}

// `kinds`: of each parameter 't' (tensor, read), 'o' (tensor, written), or that of a scalar; `names`: theirs.
static bool read_arguments(PyObject *args, const char *kinds, PyObject *names, Reading *r) {
    Py_ssize_t count = PyTuple_Size(args);
    r->count = r->held_count = 0;
    r->device = TILEC_HOST;
    r->exchange = NULL;
    if (count > MOST_ARGS || count != (Py_ssize_t)strlen(kinds)) {
        PyErr_Format(PyExc_TypeError, "takes %zd arguments, at most %d", (Py_ssize_t)strlen(kinds), MOST_ARGS);
        return false;
    }
    for (int i = 0; i < (int)count; i++) {
        PyObject *object = PyTuple_GetItem(args, i);
        bool is_tensor = kinds[i] == 't' || kinds[i] == 'o';
        const char *name = PyBytes_AsString(PyTuple_GetItem(names, i));
        if (!name || !(is_tensor ? read_tensor(object, name, r) : read_scalar(object, name, kinds[i], r))) {
            release(r);
            return false;
        }
        if (kinds[i] != 'o' || !r->read_only[i]) continue;
        PyErr_Format(PyExc_ValueError, "'%s' is written, and this tensor is read-only", name);
        release(r);
        return false;
    }
    return true;
}

// (kinds, names, args, multiprocessors), as read_arguments takes them.
static bool read_launch(PyObject *launch, Reading *r, int *multiprocessors) {
    const char *kinds;
    PyObject *names, *values;
    return PyArg_ParseTuple(launch, "sO!O!i", &kinds, &PyTuple_Type, &names, &PyTuple_Type, &values, multiprocessors) &&
           read_arguments(values, kinds, names, r);
}

// describe(tensor, name) -> (type, device, shape); device -2: memory of the host.
static PyObject *describe(PyObject *self, PyObject *args) {
    Reading r = {.device = TILEC_HOST, .stream = -1};
    PyObject *object;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os", &object, &name)) return NULL;
    if (!read_tensor(object, name, &r)) return release(&r), NULL;
    const TilecArg *arg = &r.args[0];
    PyObject *shape = PyTuple_New(arg->rank);
    for (int d = 0; shape && d < arg->rank; d++) PyTuple_SetItem(shape, d, PyLong_FromLongLong(arg->shape[d]));
    PyObject *out = shape ? Py_BuildValue("(siN)", tilec_type_name(arg->type), arg->device, shape) : NULL;
    release(&r);
    return out;
}

// ---- objects of the library ----

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release_memory = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_memory(self);
    Py_DECREF(type);
}

typedef struct ArtefactObject {
    PyObject_HEAD TilecArtefact *artefact;
} ArtefactObject;

typedef struct ModuleObject {
    PyObject_HEAD TilecModule *module;
    ArtefactObject *artefact;
    int device;
} ModuleObject;

static PyTypeObject *artefact_type, *module_type;

static void artefact_dealloc(PyObject *self) {
    tilec_artefact_destroy(((ArtefactObject *)self)->artefact);
    free_object(self);
}

static void module_dealloc(PyObject *self) {
    ModuleObject *m = (ModuleObject *)self;
    tilec_unload(m->module);
    Py_XDECREF((PyObject *)m->artefact);
    free_object(self);
}

static PyObject *artefact_text(PyObject *self, void *which) {
    const char *(*query)(const TilecArtefact *) = *(const char *(**)(const TilecArtefact *))which;
    return PyUnicode_FromString(query(((ArtefactObject *)self)->artefact));
}

static PyObject *artefact_one_launch(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(tilec_artefact_one_launch(((ArtefactObject *)self)->artefact));
}

static PyObject *artefact_cubin(PyObject *self, void *unused) {
    size_t size;
    (void)unused;
    const void *bytes = tilec_artefact_cubin(((ArtefactObject *)self)->artefact, &size);
    return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

static const TilecKernel *find_kernel(const ArtefactObject *self, const char *name) {
    const TilecKernel *kernel = tilec_artefact_find(self->artefact, name);
    if (!kernel) PyErr_Format(PyExc_KeyError, "the artefact has no kernel '%s'", name);
    return kernel;
}

// params(kernel): their names, with those of compile-time names that are no dims at the end.
static PyObject *artefact_params(PyObject *self, PyObject *args) {
    const char *name;
    TilecParam param = TILEC_INIT(TilecParam);
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    const TilecKernel *kernel = find_kernel((ArtefactObject *)self, name);
    if (!kernel) return NULL;
    PyObject *out = PyTuple_New((Py_ssize_t)tilec_kernel_param_count(kernel));
    for (size_t i = 0; out && tilec_kernel_param(kernel, i, &param); i++)
        PyTuple_SetItem(out, (Py_ssize_t)i, Py_BuildValue("(ss)", param.name, param.type));
    return out;
}

// load(device) -> Module
static PyObject *artefact_load(PyObject *self, PyObject *args) {
    ArtefactObject *artefact = (ArtefactObject *)self;
    TilecModule *module = NULL;
    TilecDiagnostics *said = NULL;
    TilecStatus status;
    int device;
    if (!PyArg_ParseTuple(args, "i", &device)) return NULL;
    Py_BEGIN_ALLOW_THREADS status = tilec_load_on(artefact->artefact, device, &module, &said);
    Py_END_ALLOW_THREADS if (status != TILEC_OK) return raise_status(status, said), NULL;
    tilec_diagnostics_destroy(said);
    allocfunc make = (allocfunc)PyType_GetSlot(module_type, Py_tp_alloc);
    ModuleObject *out = (ModuleObject *)make(module_type, 0);
    if (!out) return tilec_unload(module), NULL;
    Py_INCREF(self);
    out->module = module;
    out->artefact = artefact;
    out->device = device;
    return (PyObject *)out;
}

// select(kernel, kinds, names, args, multiprocessors) -> (variant, symbol, launches, grid, threads, shared, workspace,
// microseconds)
static PyObject *artefact_select(PyObject *self, PyObject *args) {
    const char *name, *kinds;
    PyObject *names, *values;
    int multiprocessors;
    Reading r = {.stream = -1};
    TilecSelection out = TILEC_INIT(TilecSelection);
    TilecDiagnostics *said = NULL;
    if (!PyArg_ParseTuple(args, "ssO!O!i", &name, &kinds, &PyTuple_Type, &names, &PyTuple_Type, &values,
                          &multiprocessors))
        return NULL;
    ArtefactObject *artefact = (ArtefactObject *)self;
    const TilecKernel *kernel = find_kernel(artefact, name);
    if (!kernel || !read_arguments(values, kinds, names, &r)) return NULL;
    TilecStatus status =
        tilec_select(artefact->artefact, kernel, r.args, (size_t)r.count, multiprocessors, &out, &said);
    release(&r);
    if (status != TILEC_OK) return raise_status(status, said), NULL;
    tilec_diagnostics_destroy(said);
    return Py_BuildValue("(isiLiLLd)", out.variant, out.symbol, out.launches, (long long)out.grid, out.threads,
                         (long long)out.shared_bytes, (long long)out.workspace, out.microseconds);
}

static const char *(*const query_manifest)(const TilecArtefact *) = tilec_artefact_manifest;
static const char *(*const query_ptx)(const TilecArtefact *) = tilec_artefact_ptx;
static const char *(*const query_listing)(const TilecArtefact *) = tilec_artefact_listing;
static const char *(*const query_layouts)(const TilecArtefact *) = tilec_artefact_layouts;
static const char *(*const query_target)(const TilecArtefact *) = tilec_artefact_target;

static PyGetSetDef artefact_fields[] = {
    {"manifest", artefact_text, NULL, "the launch plan, JSON", (void *)&query_manifest},
    {"ptx", artefact_text, NULL, "PTX", (void *)&query_ptx},
    {"listing", artefact_text, NULL, "the program after the passes of print_after", (void *)&query_listing},
    {"layouts", artefact_text, NULL, "the layouts of its tiles, as asked for", (void *)&query_layouts},
    {"target", artefact_text, NULL, "the target, 'sm_90a'", (void *)&query_target},
    {"cubin", artefact_cubin, NULL, "the cubin, with its launch plan; b'' where none was asked for", NULL},
    {"one_launch", artefact_one_launch, NULL, "whether it lacks what other launches take", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef artefact_methods[] = {{"params", artefact_params, METH_VARARGS, "(name, type) of each parameter"},
                                         {"load", artefact_load, METH_VARARGS, "loads the code for a device"},
                                         {"select", artefact_select, METH_VARARGS, "what a launch would do"},
                                         {NULL, NULL, 0, NULL}};
static PyType_Slot artefact_slots[] = {{Py_tp_dealloc, artefact_dealloc},
                                       {Py_tp_getset, artefact_fields},
                                       {Py_tp_methods, artefact_methods},
                                       {Py_tp_doc, "Compiled code with its launch plan."},
                                       {0, NULL}};
static PyType_Spec artefact_spec = {"tilec._tilec.Artefact", sizeof(ArtefactObject), 0, Py_TPFLAGS_DEFAULT,
                                    artefact_slots};
static PyType_Slot module_slots[] = {{Py_tp_dealloc, module_dealloc}, {Py_tp_doc, "Code on a device."}, {0, NULL}};
static PyType_Spec module_spec = {"tilec._tilec.Module", sizeof(ModuleObject), 0, Py_TPFLAGS_DEFAULT, module_slots};

// ---- compiling, emulating ----

// Pairs (name, value) of texts. NULL with an exception: they are none. The texts belong to `list`.
static TilecDefine *read_defines(PyObject *list, size_t *count) {
    Py_ssize_t size = PyTuple_Size(list);
    TilecDefine *out = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *out);
    for (Py_ssize_t i = 0; out && i < size; i++) {
        if (PyArg_ParseTuple(PyTuple_GetItem(list, i), "ss", &out[i].name, &out[i].value)) continue;
        PyMem_Free(out);
        return NULL;
    }
    *count = (size_t)(size < 0 ? 0 : size);
    return out;
}

// Flags of compile, by these names in the module.
#define COMPILE_FLAGS(FLAG)                                                                                            \
    FLAG(NO_ASSEMBLE)                                                                                                  \
    FLAG(DECLARATIONS)                                                                                                 \
    FLAG(REMARKS)                                                                                                      \
    FLAG(PDL)                                                                                                          \
    FLAG(UNINTERRUPTED) /* Ctrl-C does not end it */
#define FLAG_BIT(name) BIT_##name,
#define FLAG_MASK(name) name = 1 << BIT_##name,
enum { COMPILE_FLAGS(FLAG_BIT) };
enum { COMPILE_FLAGS(FLAG_MASK) };

// compile(name, text, target, defines, only, ptxas, record, print_after, layouts, independent, flags, launch) ->
// (Artefact, diagnostics). `launch` is None, or (kinds, names, args, multiprocessors): what `only` takes for them on such a device.
static PyObject *compile_source(PyObject *self, PyObject *args) {
    const char *name, *text;
    Py_ssize_t length;
    PyObject *defines, *asked;
    int flags;
    Reading r = {.stream = -1};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *said = NULL;
    TilecStatus status;
    (void)self;
    if (!PyArg_ParseTuple(args, "sy#sO!zzzzzziO", &name, &text, &length, &options.target, &PyTuple_Type, &defines,
                          &options.only, &options.ptxas, &options.record, &options.print_after, &options.layouts,
                          &options.independent, &flags, &asked))
        return NULL;
    TilecDefine *list = read_defines(defines, &options.define_count);
    if (!list) return NULL;
    if (asked != Py_None && !read_launch(asked, &r, &options.multiprocessors)) return PyMem_Free(list), NULL;
    options.defines = list;
    options.no_assemble = flags & NO_ASSEMBLE;
    options.declarations = flags & DECLARATIONS;
    options.remarks = flags & REMARKS;
    options.pdl = flags & PDL;
    options.cancelled = flags & UNINTERRUPTED ? NULL : interrupted;
    options.log = flags & DECLARATIONS ? NULL : log_line;
    options.log_user = "compile";
    Py_BEGIN_ALLOW_THREADS status =
        asked == Py_None ? tilec_compile(state.context, name, text, (size_t)length, &options, &artefact, &said)
                         : tilec_compile_for(state.context, name, text, (size_t)length, &options, options.only, r.args,
                                             (size_t)r.count, &artefact, &said);
    Py_END_ALLOW_THREADS PyMem_Free(list);
    release(&r);
    if (status != TILEC_OK) return raise_status(status, said), NULL;
    allocfunc make = (allocfunc)PyType_GetSlot(artefact_type, Py_tp_alloc);
    ArtefactObject *out = (ArtefactObject *)make(artefact_type, 0);
    PyObject *list_said = diagnostic_objects(said);
    tilec_diagnostics_destroy(said);
    if (!out) return tilec_artefact_destroy(artefact), Py_XDECREF(list_said), NULL;
    out->artefact = artefact;
    return Py_BuildValue("(NN)", (PyObject *)out, list_said);
}

// emulate(name, text, target, defines, kernel, kinds, names, args, seed, max_steps) -> diagnostics
static PyObject *emulate_source(PyObject *self, PyObject *args) {
    const char *name, *text, *kernel, *kinds;
    Py_ssize_t length;
    PyObject *defines, *names, *values;
    unsigned long long seed;
    long long max_steps;
    Reading r = {.stream = -1};
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    TilecEmulation emulation = TILEC_INIT(TilecEmulation);
    TilecDiagnostics *said = NULL;
    TilecStatus status;
    (void)self;
    if (!PyArg_ParseTuple(args, "sy#zO!ssO!O!KL", &name, &text, &length, &options.target, &PyTuple_Type, &defines,
                          &kernel, &kinds, &PyTuple_Type, &names, &PyTuple_Type, &values, &seed, &max_steps))
        return NULL;
    TilecDefine *list = read_defines(defines, &options.define_count);
    if (!list) return NULL;
    if (!read_arguments(values, kinds, names, &r)) return PyMem_Free(list), NULL;
    options.defines = list;
    options.cancelled = interrupted;
    options.log = log_line;
    options.log_user = "emulate";
    emulation.seed = seed;
    emulation.max_steps = max_steps;
    Py_BEGIN_ALLOW_THREADS status = tilec_emulate(state.context, name, text, (size_t)length, &options, kernel, r.args,
                                                  (size_t)r.count, &emulation, &said);
    Py_END_ALLOW_THREADS PyMem_Free(list);
    release(&r);
    if (status != TILEC_OK) return raise_status(status, said), NULL;
    PyObject *out = diagnostic_objects(said);
    tilec_diagnostics_destroy(said);
    return out;
}

// device(ordinal) -> (target, multiprocessors)
static PyObject *device(PyObject *self, PyObject *args) {
    int ordinal;
    TilecDevice out = TILEC_INIT(TilecDevice);
    TilecDiagnostics *said = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &ordinal)) return NULL;
    TilecStatus status = tilec_device(state.context, ordinal, &out, &said);
    if (status != TILEC_OK) return raise_status(status, said), NULL;
    tilec_diagnostics_destroy(said);
    return Py_BuildValue("(si)", out.target, out.multiprocessors);
}

// In the child of a fork: the processes that compile are the parent's.
static PyObject *forked(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (tilec_context_create(NULL, &state.context) != TILEC_OK) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

// ---- launching ----

typedef struct Check {   // of a compile-time value: the extent of that dim from the end (-1: the last), or the type (0)
    int arg, dim;
    long long value;
} Check;

typedef struct Special {
    ModuleObject *module;
    const TilecKernel *kernel;
    int check_count, extra_count;
    Check checks[MOST_CHECKS];
    TilecArg extras[MOST_CHECKS];   // compile-time names that are no dims: further arguments
    TilecArg *only;                 // the arguments of the one launch that it is for; NULL: any that fit
} Special;

typedef struct LauncherObject {
    PyObject_HEAD PyObject *kinds, *names;   // see read_arguments
    PyObject *allocate, *release;   // of workspace: allocate(bytes, device, stream) -> address; NULL: the stream's pool
    Special *specials;
    int special_count;
} LauncherObject;

static void launcher_dealloc(PyObject *self) {
    LauncherObject *l = (LauncherObject *)self;
    for (int i = 0; i < l->special_count; i++) {
        Py_DECREF((PyObject *)l->specials[i].module);
        PyMem_Free(l->specials[i].only);
    }
    PyMem_Free(l->specials);
    Py_XDECREF(l->kinds);
    Py_XDECREF(l->names);
    Py_XDECREF(l->allocate);
    Py_XDECREF(l->release);
    free_object(self);
}

// Launcher(kinds, names)
static int launcher_init(PyObject *self, PyObject *args, PyObject *keywords) {
    LauncherObject *l = (LauncherObject *)self;
    PyObject *kinds, *names;
    if (keywords && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Launcher takes no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O!O!", &PyBytes_Type, &kinds, &PyTuple_Type, &names)) return -1;
    if (l->kinds) {
        PyErr_SetString(PyExc_TypeError, "a Launcher is made once");
        return -1;
    }
    Py_INCREF(kinds);
    Py_INCREF(names);
    l->kinds = kinds;
    l->names = names;
    return 0;
}

static bool read_checks(PyObject *list, Special *s) {
    s->check_count = (int)PyTuple_Size(list);
    for (int i = 0; i < s->check_count; i++) {
        Check *c = &s->checks[i];
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "iiL", &c->arg, &c->dim, &c->value)) return false;
    }
    return true;
}

static bool read_extras(PyObject *list, Special *s) {
    s->extra_count = (int)PyTuple_Size(list);
    for (int i = 0; i < s->extra_count; i++) {
        PyObject *value = PyTuple_GetItem(list, i);
        s->extras[i] =
            PyFloat_Check(value) ? tilec_real(PyFloat_AsDouble(value)) : tilec_integer(PyLong_AsLongLong(value));
    }
    return !PyErr_Occurred();
}

// The arguments of one launch, None: of any.
static bool read_only_launch(const LauncherObject *l, PyObject *args, Special *s) {
    Reading r = {.stream = -1};
    if (args == Py_None) return true;
    if (!read_arguments(args, PyBytes_AsString(l->kinds), l->names, &r)) return false;
    s->only = PyMem_Malloc(sizeof *s->only * (size_t)(r.count + 1));
    if (s->only) memcpy(s->only, r.args, sizeof *s->only * (size_t)r.count);
    else PyErr_NoMemory();
    release(&r);
    return s->only != NULL;
}

// _add(module, kernel, checks, extras, only): the newest is tried first.
static PyObject *launcher_add(PyObject *self, PyObject *args) {
    LauncherObject *l = (LauncherObject *)self;
    PyObject *module, *checks, *extras, *only;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!sO!O!O", module_type, &module, &name, &PyTuple_Type, &checks, &PyTuple_Type, &extras,
                          &only))
        return NULL;
    Special *grown = PyMem_Realloc(l->specials, sizeof *grown * (size_t)(l->special_count + 1));
    if (!grown) return PyErr_NoMemory();
    l->specials = grown;
    Special added = {.module = (ModuleObject *)module};
    if (PyTuple_Size(checks) > MOST_CHECKS || PyTuple_Size(extras) > MOST_CHECKS) {
        PyErr_SetString(PyExc_ValueError, "a kernel has too many compile-time names");
        return NULL;
    }
    if (!(added.kernel = find_kernel(added.module->artefact, name)) || !read_checks(checks, &added) ||
        !read_extras(extras, &added) || !read_only_launch(l, only, &added))
        return NULL;
    Py_INCREF(module);
    memmove(&grown[1], &grown[0], sizeof *grown * (size_t)l->special_count);
    grown[0] = added;
    l->special_count++;
    Py_RETURN_NONE;
}

// _allocator(allocate, release)
static PyObject *launcher_allocator(PyObject *self, PyObject *args) {
    LauncherObject *l = (LauncherObject *)self;
    PyObject *allocate, *free_it;
    if (!PyArg_ParseTuple(args, "OO", &allocate, &free_it)) return NULL;
    Py_INCREF(allocate);
    Py_INCREF(free_it);
    Py_XDECREF(l->allocate);
    Py_XDECREF(l->release);
    l->allocate = allocate;
    l->release = free_it;
    Py_RETURN_NONE;
}

// Whether a launch takes the same code for both: what tilec_compile_for goes by.
static bool same_kind(const TilecArg *a, const TilecArg *b) {
    enum { ALIGNED = 256 };
    if (a->kind != TILEC_TENSOR) return a->kind == b->kind && a->integer == b->integer && a->real == b->real;
    size_t extents = sizeof *a->shape * (size_t)a->rank;
    return b->kind == TILEC_TENSOR && a->type == b->type && a->rank == b->rank &&
           memcmp(a->shape, b->shape, extents) == 0 && memcmp(a->strides, b->strides, extents) == 0 &&
           (uintptr_t)a->data % ALIGNED == (uintptr_t)b->data % ALIGNED;
}

static bool fits(const Special *s, const Reading *r) {
    if (s->module->device != r->device) return false;
    for (int i = 0; s->only && i < r->count; i++)
        if (!same_kind(&s->only[i], &r->args[i])) return false;
    for (int i = 0; i < s->check_count; i++) {
        const Check *c = &s->checks[i];
        const TilecArg *arg = &r->args[c->arg];
        int dim = arg->rank + c->dim;
        if (c->dim && dim < 0) return false;
        if ((c->dim ? arg->shape[dim] : (int64_t)arg->type) != c->value) return false;
    }
    return r->count + s->extra_count <= MOST_ARGS;
}

static const Special *find_special(const LauncherObject *l, const Reading *r) {
    for (int i = 0; i < l->special_count; i++)
        if (fits(&l->specials[i], r)) return &l->specials[i];
    return NULL;
}

typedef struct Scratch {
    LauncherObject *launcher;
    int device;
} Scratch;

static void *take_scratch(void *user, size_t bytes, void *stream) {
    const Scratch *s = user;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *address = PyObject_CallFunction(s->launcher->allocate, "niK", (Py_ssize_t)bytes, s->device,
                                              (unsigned long long)(uintptr_t)stream);
    void *out = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    PyGILState_Release(lock);
    return out;
}

static void give_scratch(void *user, void *memory, void *stream) {
    const Scratch *s = user;
    (void)stream;
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *done = PyObject_CallFunction(s->launcher->release, "K", (unsigned long long)(uintptr_t)memory);
    if (!done) PyErr_WriteUnraisable(s->launcher->release);
    Py_XDECREF(done);
    PyGILState_Release(lock);
}

static TilecStatus launch(LauncherObject *l, const Special *special, Reading *r, void *stream,
                          TilecDiagnostics **said) {
    TilecLaunch options = TILEC_INIT(TilecLaunch);
    Scratch scratch = {l, r->device};
    TilecStatus status;
    const TilecModule *module = special->module->module;   // a call of Python may move `special`
    const TilecKernel *kernel = special->kernel;
    memcpy(&r->args[r->count], special->extras, sizeof *r->args * (size_t)special->extra_count);
    size_t count = (size_t)(r->count + special->extra_count);
    options.stream = stream;
    if (l->allocate) {
        options.allocate = take_scratch;
        options.release = give_scratch;
        options.allocate_user = &scratch;
    }
    Py_BEGIN_ALLOW_THREADS status = tilec_launch(module, kernel, r->args, count, &options, said);
    Py_END_ALLOW_THREADS return status;
}

typedef enum { LAUNCHED, NOT_LOADED, FAILED } Outcome;

// `given`: a stream, an integer; NULL: the current one of the tensors' framework, else the default stream.
static Outcome launch_arguments(LauncherObject *l, PyObject *args, PyObject *given) {
    Reading r;
    TilecDiagnostics *said = NULL;
    void *stream = given ? PyLong_AsVoidPtr(given) : NULL;
    if (given && PyErr_Occurred()) return FAILED;
    r.stream = stream ? (long long)(intptr_t)stream : 1;   // of DLPack 1: the default stream
    if (!read_arguments(args, PyBytes_AsString(l->kinds), l->names, &r)) return FAILED;
    const Special *special = r.device >= 0 ? find_special(l, &r) : NULL;
    if (!special) return release(&r), NOT_LOADED;
    if (!given && r.exchange && r.exchange->current_stream(DL_CUDA, r.device, &stream)) return release(&r), FAILED;
    TilecStatus status = launch(l, special, &r, stream, &said);
    release(&r);
    if (status == TILEC_OK) {
        if (said) tilec_diagnostics_destroy(said);
        return LAUNCHED;
    }
    raise_status(status, said);
    return FAILED;
}

static PyObject *launcher_call(PyObject *self, PyObject *args, PyObject *keywords) {
    LauncherObject *l = (LauncherObject *)self;
    if (l->special_count && (!keywords || PyDict_Size(keywords) == 0) && PyTuple_Size(args) == PyBytes_Size(l->kinds)) {
        Outcome outcome = launch_arguments(l, args, NULL);
        if (outcome == LAUNCHED) Py_RETURN_NONE;
        if (outcome == FAILED) return NULL;
    }
    PyObject *method = PyObject_GetAttrString(self, "_call");
    PyObject *given = keywords ? keywords : PyDict_New();
    PyObject *out = method && given ? PyObject_CallFunctionObjArgs(method, args, given, NULL) : NULL;
    if (given != keywords) Py_XDECREF(given);
    Py_XDECREF(method);
    return out;
}

// _launch(args, stream) -> bool: False, no specialization for them is loaded.
static PyObject *launcher_launch(PyObject *self, PyObject *args) {
    PyObject *values, *stream;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &values, &stream)) return NULL;
    Outcome outcome = launch_arguments((LauncherObject *)self, values, stream == Py_None ? NULL : stream);
    return outcome == FAILED ? NULL : PyBool_FromLong(outcome == LAUNCHED);
}

static PyMethodDef launcher_methods[] = {
    {"_add", launcher_add, METH_VARARGS, "adds a specialization"},
    {"_allocator", launcher_allocator, METH_VARARGS, "sets where workspace comes from"},
    {"_launch", launcher_launch, METH_VARARGS, "launches what is loaded"},
    {NULL, NULL, 0, NULL}};
static PyType_Slot launcher_slots[] = {{Py_tp_dealloc, launcher_dealloc},
                                       {Py_tp_init, launcher_init},
                                       {Py_tp_call, launcher_call},
                                       {Py_tp_methods, launcher_methods},
                                       {Py_tp_doc, "The loaded specializations of a kernel."},
                                       {0, NULL}};
static PyType_Spec launcher_spec = {"tilec._tilec.Launcher", sizeof(LauncherObject), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, launcher_slots};

// ---- the module ----

static PyMethodDef functions[] = {{"compile", compile_source, METH_VARARGS, "tilec_compile"},
                                  {"emulate", emulate_source, METH_VARARGS, "tilec_emulate"},
                                  {"describe", describe, METH_VARARGS, "(type, device, shape) of a tensor"},
                                  {"device", device, METH_VARARGS, "(target, multiprocessors) of a device"},
                                  {"log_to", log_to, METH_O, "names the function that takes (what, line)"},
                                  {"forked", forked, METH_NOARGS, "in the child of a fork"},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tilec", "libtilec for Python.", -1, functions, NULL, NULL, NULL, NULL};

static PyStructSequence_Field diagnostic_fields[] = {{"code", "'T0123': `tilec explain` explains it"},
                                                     {"severity", "'error', 'warning' or 'remark'"},
                                                     {"file", "of the source; '': no place"},
                                                     {"line", "from 1"},
                                                     {"column", "from 1, in bytes"},
                                                     {"end_line", NULL},
                                                     {"end_column", "one past the last byte"},
                                                     {"message", NULL},
                                                     {"remedy", "how to mend it; may be ''"},
                                                     {NULL, NULL}};
static PyStructSequence_Desc diagnostic_description = {"tilec.Diagnostic", "One diagnostic of the compiler.",
                                                       diagnostic_fields, 9};

// Takes the reference.
static bool add(PyObject *module, const char *name, PyObject *object) {
    if (object && PyModule_AddObject(module, name, object) == 0) return true;
    Py_XDECREF(object);
    return false;
}

static bool add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **out) {
    *out = (PyTypeObject *)PyType_FromSpec(spec);
    if (!*out) return false;
    Py_INCREF((PyObject *)*out);
    return add(module, name, (PyObject *)*out);
}

// The names of types, by their numbers.
static PyObject *type_names(void) {
    PyObject *out = PyTuple_New(TILEC_E5M2 + 1);
    for (int i = 0; out && i <= TILEC_E5M2; i++)
        PyTuple_SetItem(out, i, PyUnicode_FromString(tilec_type_name((TilecType)i)));
    return out;
}

static bool add_flags(PyObject *module) {
#define ADD_FLAG(name) add(module, #name, PyLong_FromLong(name)) &&
    return COMPILE_FLAGS(ADD_FLAG) true;
#undef ADD_FLAG
}

static bool fill(PyObject *module) {
    PyTypeObject *launcher;
    state.diagnostic = PyStructSequence_NewType(&diagnostic_description);
    state.error = PyErr_NewExceptionWithDoc("tilec.Error",
                                            "A diagnostic. `diagnostics` has all of them, `status` is a TilecStatus.",
                                            PyExc_RuntimeError, NULL);
    if (!state.diagnostic || !state.error || tilec_context_create(NULL, &state.context) != TILEC_OK) return false;
    Py_INCREF(state.error);
    Py_INCREF((PyObject *)state.diagnostic);
    return add(module, "Error", state.error) && add(module, "Diagnostic", (PyObject *)state.diagnostic) &&
           add(module, "version", PyUnicode_FromString(tilec_version())) && add(module, "types", type_names()) &&
           add_flags(module) && add_type(module, "Artefact", &artefact_spec, &artefact_type) &&
           add_type(module, "Module", &module_spec, &module_type) &&
           add_type(module, "Launcher", &launcher_spec, &launcher);
}

PyMODINIT_FUNC PyInit__tilec(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && fill(module)) return module;
    Py_XDECREF(module);
    return NULL;
}
