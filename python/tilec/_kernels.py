"""Sources, and their kernels as functions of tensors."""
from __future__ import annotations

import collections
import collections.abc
import json
import keyword
import math
import operator
import os
import sys
import warnings

from . import _arrays, _tilec
from ._expressions import parse
from ._program import assembler
from ._tilec import DECLARATIONS, NO_ASSEMBLE, PDL, REMARKS, UNINTERRUPTED

_FLOATS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2")
_TYPES = {name: number for number, name in enumerate(_tilec.types)}


class CompileWarning(UserWarning):
    """A warning of the compiler."""


Selection = collections.namedtuple("Selection", "variant symbol launches grid threads shared_bytes workspace microseconds")
Selection.__doc__ = ("What a launch does: index and symbol of its variant, kernels, CTAs, threads and bytes; the time that the cost model predicts, 0 "
                     "where the variant has no cost.")


class Parameter:
    """A parameter as it is declared: `name`, `type`, and of a tensor `mode`, `shape`, `alias`. Of `[..B, M, K]`, which takes any
    number of leading dims, `leading` is B."""
    __slots__ = ("name", "type", "mode", "shape", "strides", "alias", "dims", "leading")

    def __init__(self, declared):
        self.name, self.type = declared["name"], declared["type"]
        self.mode, self.shape = declared.get("mode"), declared.get("shape")
        self.strides, self.alias = declared.get("strides"), declared.get("alias")
        self.dims = [text if text.isidentifier() else None for text in self.shape or ()]
        first = self.shape[0] if self.shape else ""
        self.leading = first[2:] if first.startswith("..") else None

    def split(self, shape):
        """The leading dims that are one for the kernel, and the others."""
        count = max(len(shape) - len(self.dims) + 1, 0) if self.leading else 0
        return tuple(shape[:count]), tuple(shape[count:])

    @property
    def is_tensor(self):
        return self.mode is not None

    def kind(self, type_names):
        """As _tilec.Launcher takes it."""
        if self.is_tensor:
            return "t" if self.mode == "in" else "o"
        if self.type in type_names:
            return "n"
        return "f" if self.type in _FLOATS else {"bool": "b", "u64": "u"}.get(self.type, "i")


def _plain(name, value):
    """The value of a compile-time name as a bool, number or text of Python: those of NumPy, and tensors of one element, have `item`."""
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, (bool, int, float, str)):
        raise TypeError(f"'{name}' is a number, a bool or a text, not {type(value)}")
    return plain


def _value_text(value):
    """As the language has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return next((kind.__repr__(value) for kind in (int, float) if isinstance(value, kind)), value)


def _say(diagnostics):
    """Warnings of a compile are warnings; what a kernel prints on the emulator is printed."""
    for d in diagnostics:
        if d.severity == "warning":
            place = f"{d.file}:{d.line}:{d.column}: " if d.file else ""
            warnings.warn(f"{place}[{d.code}] {d.message}", CompileWarning, stacklevel=4)
        elif d.severity == "remark":
            print(d.message)


def _log(what, line):
    """To the logger `tilec`: compiles as information, what the emulator runs for debugging."""
    logging = sys.modules.get("logging")   # never imported here: without it there is no handler
    if logging:
        logging.getLogger("tilec").log(logging.INFO if what == "compile" else logging.DEBUG, line)


_tilec.log_to(_log)


class _Whole:
    """The code of a kernel for any launch, of a thread of its own: it begins when a second launch wants code, and until it is there each
    launch has what it takes compiled alone. So the first results of a program need a tenth of the work, and one with a single
    shape never does the rest. A thread, since the compile is a process that takes seconds, and the next launch shall not wait.
    """
    SOON = 0.05   # seconds in which code comes from the compile cache

    def __init__(self, compile):
        self.compile, self.thread, self.made, self.error = compile, None, None, None

    def _run(self):
        try:
            self.made = self.compile()
        except Exception as error:   # which the next launch that wants code raises
            self.error = error

    def get(self):
        """(artefact, diagnostics); None: not yet. A fork leaves the thread behind: then it begins again."""
        import threading   # which takes as long to import as all of tilec
        if not self.made and not self.error and not (self.thread and self.thread.is_alive()):
            self.thread = threading.Thread(target=self._run, name="tilec compile", daemon=True)
            self.thread.start()
        self.thread.join(self.SOON)
        if self.error:
            raise self.error
        return self.made


class Bound:
    """The arguments of a call, with what follows from them: dims, types, compile-time values."""

    def __init__(self, kernel, given):
        self.kernel, self.given = kernel, given
        self.names = {}      # dims and integer scalars
        self.leading = {}    # names of all leading dims: these
        self.types = {}      # compile-time names of types
        self.device = -2     # of the first tensor on a device
        self.like = None     # a tensor, for new ones
        for p in kernel.params:
            if p.name not in given:
                continue
            if p.is_tensor:
                self._take_tensor(p, given[p.name])
            elif p.type not in _FLOATS and isinstance(given[p.name], int):
                self.names.setdefault(p.name, given[p.name])

    def _take_tensor(self, p, tensor):
        type_name, device, shape = _tilec.describe(tensor, p.name)
        if self.like is None or (device >= 0 > self.device):
            self.like = tensor
        if device >= 0 > self.device:
            self.device = device
        if p.type in self.kernel.type_names:
            if type_name == "unknown":
                raise TypeError(f"{self.kernel.name}: tilec has no type for the elements of '{p.name}'")
            self.types.setdefault(p.type, type_name)
        leading, others = p.split(shape)
        if p.leading:
            self.leading.setdefault(p.leading, leading)
            self.names.setdefault(p.leading, math.prod(leading))
        for name, extent in zip(p.dims[bool(p.leading):], others):
            if name is not None and name not in self.kernel.source.consts:
                self.names.setdefault(name, extent)

    def extent(self, text):
        """Of a shape: dims, else compile-time values, else consts of the file."""
        names = collections.ChainMap(self.names, self.kernel.values, _Consts(self.kernel))
        return parse(text)(names)

    def shape_of(self, p):
        try:
            if p.leading is None:
                return tuple(self.extent(text) for text in p.shape)
            leading = self.leading[p.leading] if p.leading in self.leading else (self.extent(p.leading),)
            return leading + tuple(self.extent(text) for text in p.shape[1:])
        except KeyError as missing:
            raise TypeError(f"{self.kernel.name}: {missing.args[0]} of the shape of '{p.name}' does not follow from the "
                            f"arguments: pass '{p.name}', or {missing.args[0]}=") from None

    def type_of(self, p):
        return self.compile_time().get(p.type, p.type)

    def compile_time(self):
        """The value of each compile-time name."""
        kernel, out = self.kernel, {}
        for name, kind in kernel.names.items():
            if name in kernel.values:
                out[name] = kernel.values[name]
            elif name in (self.types if kind == "type" else self.names):
                out[name] = (self.types if kind == "type" else self.names)[name]
            else:
                raise TypeError(f"{kernel.name}: the compile-time name {name} does not follow from the arguments: pass {name}=")
        return out

    def allocate(self):
        """Makes the outputs that were not given; returns them."""
        made = []
        for p in self.kernel.params:
            if p.name in self.given:
                continue
            if self.like is None:
                raise TypeError(f"{self.kernel.name}: without a tensor among the arguments, pass '{p.name}'")
            self.given[p.name] = _arrays.empty(self.like, self.shape_of(p), self.type_of(p))
            made.append(self.given[p.name])
        return made

    def arguments(self):
        return tuple(self.given[p.name] for p in self.kernel.params)


class _Consts(dict):
    """Consts of the file, as numbers."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def __missing__(self, name):
        return parse(self.kernel.source.consts[name])(collections.ChainMap(self.kernel.values, self))


class _Signature:
    """Of a kernel, for `inspect` and `help`: outputs may be left out. The class has none of its own."""

    def __get__(self, kernel, owner):
        if kernel is None:
            raise AttributeError("__signature__")
        from inspect import Parameter as P, Signature   # which takes as long to import as all of tilec
        out, optional = [], False
        for p in kernel.params:   # what follows an output has to be a keyword, as positions of both calls differ
            kind = P.KEYWORD_ONLY if optional and p.mode != "out" else P.POSITIONAL_OR_KEYWORD
            optional |= p.mode == "out"
            type_text = f"{p.type}[{', '.join(p.shape)}]" if p.is_tensor else p.type
            out.append(P(p.name + "_" * keyword.iskeyword(p.name), kind, annotation=type_text, **({"default": None} if p.mode == "out" else {})))
        if all(p.name != "stream" for p in kernel.params):
            out.append(P("stream", P.KEYWORD_ONLY, default=None))
        return Signature([*sorted(out, key=lambda p: p.kind), P("values", P.VAR_KEYWORD)])


class Kernel(_tilec.Launcher):
    """A kernel or program of a source, as a function of tensors.

    `k(a, b, c)` writes to the tensors that the kernel writes; `c = k(a, b)` makes all outputs that are not given, like the
    first tensor. Arguments have the parameters' order, or their names as keywords. Compile-time names, tunables and consts
    of the file are keywords too: `k(x, NEGATE=1)`; those that are dims or types of tensors follow from the arguments.

    Tensors on a CUDA device are used there, in the current stream of their framework (`stream=` names another one); the
    first call for a device compiles what this launch takes, or takes the code from the compile cache; when another launch wants
    more, all is compiled, in a thread. Tensors of the CPU run on the emulator.
    """

    __signature__ = _Signature()

    def __init__(self, source, declared, values):
        self.source, self.name, self.values = source, declared["name"], values
        self.__name__ = self.__qualname__ = self.name
        self.params = [Parameter(p) for p in declared["params"]]
        self.names = {n["name"]: n["kind"] for n in declared["names"]}
        self.type_names = {name for name, kind in self.names.items() if kind == "type"}
        self._declared, self._bound = declared, {}
        self._wholes = {}   # by target and compile-time values: _Whole, once a launch has been compiled alone
        dims = {dim for p in self.params for dim in p.dims if dim}
        self._extras = [name for name, kind in self.names.items() if kind == "number" and name not in dims]
        self._kinds = "".join(p.kind(self.type_names) for p in self.params)
        self._labels = tuple(p.name.encode() for p in self.params)
        super().__init__(self._kinds.encode(), self._labels)

    def __repr__(self):
        values = "".join(f", {name}={value}" for name, value in self.values.items())
        return f"<tilec kernel {self.name} of {self.source.name}{values}>"

    def __deepcopy__(self, copies):
        return self   # it does not change

    def __reduce__(self):
        source = self.source
        return _again, ((source.name, source.text, source.record, source.pdl, source.independent, {}), self.name, self.values)

    # ---- arguments ----

    def bind(self, **values: object) -> Kernel:
        """The kernel with values for compile-time names, tunables or consts."""
        for name in values:
            if name not in self.names and name not in self.source.settable:
                raise TypeError(f"{self.name} has no parameter, compile-time name, tunable or const '{name}'")
        values = {name: _plain(name, value) for name, value in values.items()}
        key = tuple(sorted((name, _value_text(value)) for name, value in values.items()))
        if key not in self._bound:
            self._bound[key] = Kernel(self.source, self._declared, {**self.values, **values}) if key else self
        return self._bound[key]

    def _split(self, keywords):
        """(arguments, compile-time values) of keywords."""
        names = {p.name for p in self.params}
        given = {name: value for name, value in keywords.items() if name in names}
        return given, {name: value for name, value in keywords.items() if name not in names}

    def _bind(self, args, given):
        """Arguments have the order of all parameters, or of those that are no outputs; keywords give the others."""
        for takes in (self.params, [p for p in self.params if p.mode != "out"]):
            first, others = takes[:len(args)], takes[len(args):]
            if len(args) <= len(takes) and all(p.name in given for p in others) and not any(p.name in given for p in first):
                return Bound(self, {**given, **{p.name: value for p, value in zip(first, args)}})
        twice = next((p.name for p in self.params[:len(args)] if p.name in given), None)
        if twice:
            raise TypeError(f"{self.name} got more than one value for '{twice}'")
        open_params = [p for p in self.params if p.name not in given]
        inputs = [p for p in open_params if p.mode != "out"]
        takes_text = f"{len(inputs)}, or {len(open_params)} with its outputs" if inputs != open_params else len(inputs)
        raise TypeError(f"{self.name} takes {takes_text}, not {len(args)} arguments here: " + ", ".join(p.name for p in open_params))

    def _call(self, args, keywords):
        named = "stream" in self.names or any(p.name == "stream" for p in self.params)   # then it is the kernel's
        stream = None if named else keywords.pop("stream", None)
        if stream is not None:
            stream = operator.index(stream)   # on the emulator, too
        given, values = self._split(keywords)
        if values:
            return self.bind(**values)(*args, **given, **({"stream": stream} if stream is not None else {}))
        bound = self._bind(args, given)
        made = bound.allocate()
        if bound.device >= 0:
            self._launch_bound(bound, stream)
        else:
            self._emulate(bound, 0, 0)
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    # ---- compiling, running ----

    def _defines(self, values):
        """Of compile-time values and of `self.values`, as `-D`."""
        own = {**self.values, **values}
        tunables = self._declared["tunables"]
        return tuple((f"{self.name}.{name}" if name in self.names or name in tunables else name, _value_text(value))
                     for name, value in own.items())

    def compile(self, target: str, *, assemble: bool = True, remarks: bool = False, print_after: str | None = None,
                layouts: str | None = None, **values: object) -> _tilec.Artefact:
        """The code of this kernel for a target ("sm_90a"): an object with `ptx`, `cubin`, `manifest`.

        With `print_after`, a pass or "all", `listing` is the program after it; with `layouts`, "text", "svg" or "html", `layouts`
        shows the layouts of its tiles. `remarks` prints which optimizations were not applied, and why.
        """
        flags = (0 if assemble else NO_ASSEMBLE) | (REMARKS if remarks else 0)
        artefact, said = self._compile(target, values, flags, print_after, layouts)
        _say(said)
        return artefact

    def _compile(self, target, values, flags, print_after=None, layouts=None, launch=None):
        """(artefact, diagnostics), for any launch, or `launch`: (kinds, names, arguments, multiprocessors)."""
        return _tilec.compile(self.source.name, self.source.text, target, self._defines(values), self.name, assembler(),
                              self.source.record, print_after, layouts, self.source.independent,
                              flags | (PDL if self.source.pdl else 0), launch)

    def _code_for(self, target, multiprocessors, bound):
        """Of all launches where it is there, else of this one alone."""
        kinds, names, args, values = self._with_extras(bound)
        key = target, tuple(values.items())   # the whole has variants for any number of multiprocessors
        made = self._wholes[key].get() if key in self._wholes else None
        made = made or self._compile(target, values, 0, launch=(kinds, names, args, multiprocessors))
        artefact, said = made
        if artefact.one_launch:
            self._wholes.setdefault(key, _Whole(lambda: self._compile(target, values, UNINTERRUPTED)))
        _say(said)
        return artefact

    def _launch_bound(self, bound, stream):
        args = bound.arguments()
        if self._launch(args, stream):
            return
        target, multiprocessors = _tilec.device(bound.device)
        values = bound.compile_time()
        artefact = self._code_for(target, multiprocessors, bound)
        if _arrays.is_torch(bound.like):
            self._allocator(_torch_allocate, sys.modules["torch"].cuda.caching_allocator_delete)
        self._add(artefact.load(bound.device), self.name, self._checks(values), tuple(values[name] for name in self._extras),
                  args if artefact.one_launch else None)
        if not self._launch(args, stream):
            raise RuntimeError(f"{self.name}: the arguments do not fit the code that was compiled for them")

    def _checks(self, values):
        """Where the arguments show compile-time values: (argument, dim from the end, value), of a type (argument, 0, its number)."""
        out = []
        for name, kind in self.names.items():
            for at, p in enumerate(self.params):
                if kind == "type" and p.is_tensor and p.type == name:
                    out.append((at, 0, _TYPES[values[name]]))
                    break
                if kind == "number" and name in p.dims:
                    out.append((at, p.dims.index(name) - len(p.dims), int(values[name])))
                    break
        return tuple(out)

    def _with_extras(self, bound):
        """(kinds, names, arguments) with the compile-time names that are further scalars."""
        values = bound.compile_time()
        extras = [values[name] for name in self._extras]
        kinds = "".join("b" if isinstance(v, bool) else "f" if isinstance(v, float) else "i" for v in extras)
        return (self._kinds + kinds, self._labels + tuple(name.encode() for name in self._extras),
                bound.arguments() + tuple(extras), values)

    def _emulate(self, bound, seed, max_steps):
        kinds, names, args, values = self._with_extras(bound)
        _say(_tilec.emulate(self.source.name, self.source.text, None, self._defines(values), self.name, kinds, names, args,
                            seed, max_steps))

    def emulate(self, *args: object, seed: int = 0, max_steps: int = 0, **keywords: object):
        """Runs on the emulator, which reports races, uninitialised elements and accesses outside of tensors.

        `seed` decides the order of warps and asynchronous copies; `max_steps` ends a kernel that does not end (0: 10^9
        steps of all CTAs, a minute at most).
        """
        given, values = self._split(keywords)
        if values:
            return self.bind(**values).emulate(*args, seed=seed, max_steps=max_steps, **given)
        bound = self._bind(args, given)
        made = bound.allocate()
        self._emulate(bound, seed, max_steps)
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def select(self, *args: object, target: str = "sm_90a", multiprocessors: int = 132, **keywords: object) -> Selection:
        """What a launch with these arguments would do on such a device, without one: a Selection."""
        given, values = self._split(keywords)
        if values:
            return self.bind(**values).select(*args, target=target, multiprocessors=multiprocessors, **given)
        bound = self._bind(args, given)
        bound.allocate()
        kinds, names, full, values = self._with_extras(bound)
        artefact = self.compile(target, assemble=False, **values)
        return Selection(*artefact.select(self.name, kinds, names, full, multiprocessors))


def _torch_allocate(size, device, stream):
    return sys.modules["torch"].cuda.caching_allocator_alloc(size, device, stream)


class Source(collections.abc.Mapping):
    """A `.tile` source: a mapping of names to kernels and programs, in the file's order."""

    def __init__(self, name, text, record, pdl, independent, values):
        self.name, self.text, self.record, self.pdl = name, text, record, pdl
        self.independent = independent
        artefact, said = _tilec.compile(name, text, "sm_80", (), None, None, None, None, None, None, DECLARATIONS, None)
        _say(said)
        declarations = json.loads(artefact.manifest)["declarations"]
        self.consts = {c["name"]: c["value"] for c in declarations["consts"]}
        self.settable = {*self.consts, *(t for k in declarations["kernels"] for t in k["tunables"])}
        declared = {k["name"]: k for k in declarations["kernels"]}
        known = self.settable | {n["name"] for k in declared.values() for n in k["names"]}
        for value in values:
            if value not in known:
                raise TypeError(f"{name} has no compile-time name, tunable or const '{value}'")
        values = {value: _plain(value, values[value]) for value in values}
        self._kernels = {key: Kernel(self, k, self._of(k, values)) for key, k in declared.items()}

    def _of(self, declared, values):
        own = {n["name"] for n in declared["names"]} | self.settable
        return {name: value for name, value in values.items() if name in own}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            raise KeyError(f"{self.name} has no kernel '{name}'; it has " + ", ".join(self._kernels))
        return self._kernels[name]

    def __iter__(self):
        return iter(self._kernels)

    def __len__(self):
        return len(self._kernels)

    def __repr__(self):
        return f"<tilec source {self.name}: {', '.join(self._kernels)}>"


def _again(source, name, values):
    """A kernel that was pickled."""
    return Source(*source)[name].bind(**values)


def _record_of(path):
    """As the command line: TILEC_RECORD, else FILE.tune of FILE.tile."""
    record = os.environ.get("TILEC_RECORD")
    if record is None and path is not None:
        near = os.path.splitext(path)[0] + ".tune"
        record = near if os.path.exists(near) else None
    return None if record in (None, "", "none") else record


def load(path: str | os.PathLike | None = None, /, *, source: str | bytes | None = None, name: str = "<source>", pdl: bool = False,
         independent: collections.abc.Collection[str] = (), **values: object) -> Source:
    """The kernels of a file, or of `source`, a text; with values for compile-time names, tunables or consts.

    Only parses: a kernel is compiled at its first call on a device. With `pdl` every grid is `@pdl`: launches may overlap with the end of
    the kernel before, which pays for short kernels that follow one another. `independent`: tensors of its kernels, weights for instance, that
    no kernel launched before and still running writes: with `pdl` their loads start at once.
    """
    if (path is None) == (source is None):
        raise TypeError("load takes the path of a file, or source=")
    named = ",".join(independent) or None
    if source is not None:
        return Source(name, source.encode() if isinstance(source, str) else bytes(source), _record_of(None), pdl, named, values)
    path = os.path.abspath(os.fspath(path))
    with open(path, "rb") as file:
        return Source(path, file.read(), _record_of(path), pdl, named, values)


def emulate(kernel: Kernel, /, *args: object, **keywords: object):
    """`kernel.emulate(...)`, on tensors of the CPU."""
    return kernel.emulate(*args, **keywords)


def select(kernel: Kernel, /, *args: object, **keywords: object) -> Selection:
    """`kernel.select(...)`: which variant a launch takes, with its grid and memory."""
    return kernel.select(*args, **keywords)
