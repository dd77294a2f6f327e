"""Operators of PyTorch from a source: what they take and make follows from its declarations.

    >>> import tilec.torch
    >>> norm = tilec.torch.load("rmsnorm.tile").rmsnorm
    >>> y = norm(x, w, 1e-6)                   # torch.ops.tilec.rmsnorm

An operator is functional: it takes the tensors that the kernel reads, and its scalars, and returns the tensors that the kernel
writes; a tensor that the kernel reads and writes (`inout`) is changed in place. It has shapes for `torch.compile`, with dynamic
shapes too; a kernel `NAME_backward` of the same file is its gradient. Tensors of the CPU run on the emulator.
"""
from __future__ import annotations

import math
import os
import re
from collections.abc import Collection

import torch
from torch import library

from . import _arrays, _tilec
from ._kernels import _FLOATS, _Consts, load as _load
from ._expressions import parse

_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()")
_IMPORT = re.compile(rb'\bimport\s*"')
_TAGS = tuple(getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name))
_libraries = {}    # by namespace
_operators = {}    # by qualified name


class Operator:
    """A kernel as an operator: `op(*args)`; `op.overload` is that of torch.ops, `op.schema` its schema."""

    def __init__(self, namespace, kernel):
        self.kernel, self.name = kernel, kernel.name
        self.qualified = f"{namespace}::{kernel.name}"
        self.inputs = [p for p in kernel.params if p.mode != "out"]
        self.outputs = [p for p in kernel.params if p.mode == "out"]
        self.is_functional = all(p.mode != "inout" for p in kernel.params)
        self._bindings = [(at, d - len(p.dims), name) for at, p in enumerate(self.inputs) for d, name in enumerate(p.dims)
                          if name is not None and name not in kernel.source.consts]
        self._first = next((at for at, p in enumerate(self.inputs) if p.is_tensor), None)
        self._read = [(at, self._strides_of(p)) for at, p in enumerate(self.inputs) if p.mode == "in"]
        self._type_sources = {p.type: at for at, p in reversed(list(enumerate(self.inputs)))
                              if p.is_tensor and p.type in kernel.type_names}
        self._like = [self._input_like(p) for p in self.outputs]
        self._shapes = [[parse(text) for text in p.shape[p.leading is not None:]] for p in self.outputs]
        self._leading = {p.leading: (at, p) for at, p in reversed(list(enumerate(self.inputs))) if p.leading}
        self._consts = {name: _Consts(kernel)[name] for name in self._used_consts()}
        self.extras = self._missing_names()
        self.schema = self._make_schema()

    def __repr__(self):
        return f"<tilec operator {self.qualified}{self.schema}>"

    def __call__(self, *args, **keywords):
        return self.overload(*args, **keywords)

    def __deepcopy__(self, copies):
        return self

    def __reduce__(self):
        return _again, (self.loaded, self.name)

    def _input_like(self, output):
        """The input whose strides an output takes, where it may have any: that of the same shape. None: dense."""
        if output.strides:
            for at, p in enumerate(self.inputs):
                if p.is_tensor and p.strides and p.shape == output.shape:
                    return at
        return None

    def _strides_of(self, p):
        """What the strides of an input have to be: (dim from the end, value by names) for each that is not free. None: dense."""
        if not p.strides:
            return None
        free = set(p.strides) - {dim for q in self.kernel.params for dim in q.dims} - set(self.kernel.names) - set(self.kernel.source.consts)
        return [(d - len(p.strides), parse(text)) for d, text in enumerate(p.strides) if text not in free]

    # ---- schema ----

    def _used(self):
        return {name for p in self.outputs for text in p.shape for name in _NAMES.findall(text)}

    def _used_consts(self):
        return self._used() & set(self.kernel.source.consts)

    def _missing_names(self):
        """Further keywords: dims of outputs, and compile-time names, that no argument shows. By name their kinds."""
        kernel = self.kernel
        known = {name for _, _, name in self._bindings} | set(self._type_sources) | set(kernel.values) | set(self._consts)
        known |= set(self._leading)
        known |= {p.name for p in self.inputs if not p.is_tensor and p.type not in _FLOATS}
        needed = {name: "number" for name in sorted(self._used())} | kernel.names
        return {name: kind for name, kind in needed.items() if name not in known}

    def _make_schema(self):
        args, letter = [], 0
        for p in self.inputs:
            if p.mode == "inout":
                args.append(f"Tensor({chr(ord('a') + letter)}!) {p.name}")
                letter += 1
            elif p.is_tensor:
                args.append(f"Tensor {p.name}")
            else:
                kind = p.kind(self.kernel.type_names)
                args.append({"f": "float", "n": "float", "i": "SymInt", "u": "SymInt", "b": "bool"}[kind] + f" {p.name}")
        if self.extras:
            args.append("*")
            args += [f"{'str' if kind == 'type' else 'SymInt'} {name}" for name, kind in self.extras.items()]
        made = ["Tensor"] * len(self.outputs)
        return f"({', '.join(args)}) -> {made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'}"

    # ---- running ----

    def _names_of(self, args, keywords):
        names = dict(self._consts)
        names.update(self.kernel.values)
        for p, value in zip(self.inputs, args):
            if not p.is_tensor:
                names[p.name] = value
        for name, (at, p) in self._leading.items():
            names[name] = math.prod(p.split(args[at].shape)[0])
        for at, d, name in reversed(self._bindings):
            names[name] = args[at].shape[d]
        names.update(keywords)
        return names

    def _make_outputs(self, args, keywords, names):
        if self._first is None:
            raise TypeError(f"{self.qualified} has no tensor among its arguments, so its outputs have no device")
        like, out = args[self._first], []
        for p, shape, same in zip(self.outputs, self._shapes, self._like):
            if p.type in self._type_sources:
                dtype = args[self._type_sources[p.type]].dtype
            else:
                dtype = _arrays.torch_type(keywords.get(p.type) or self.kernel.values.get(p.type, p.type))
            if same is not None:
                out.append(torch.empty_like(args[same], dtype=dtype))
            else:
                extents = [*self._leading_of(p, args, names), *(extent(names) for extent in shape)]
                out.append(torch.empty(extents, dtype=dtype, device=like.device))
        return out

    def _leading_of(self, output, args, names):
        if output.leading is None:
            return ()
        if output.leading not in self._leading:
            return (names[output.leading],)
        at, source = self._leading[output.leading]
        return source.split(args[at].shape)[0]

    def run(self, *args, **keywords):
        """On tensors with memory."""
        args, names = list(args), self._names_of(args, keywords)
        for at, strides in self._read:
            x = args[at]
            fits = x.is_contiguous() if strides is None else all(x.stride(d) == of(names) for d, of in strides)
            if not fits:
                args[at] = x.contiguous()
        outputs = self._make_outputs(args, keywords, names) if self.outputs else []
        given, made = iter(args), iter(outputs)
        full = [next(made if p.mode == "out" else given) for p in self.kernel.params]
        if keywords:
            self.kernel(*full, **{name: value for name, value in keywords.items() if name in self.kernel.names})
        else:
            self.kernel(*full)
        return self._returned(outputs)

    def shape_of_outputs(self, *args, **keywords):
        """On tensors without memory. Extents that one name stands for have to be equal."""
        names = self._names_of(args, keywords)
        for at, p in enumerate(self.inputs):
            if p.is_tensor:
                fits = args[at].dim() >= len(p.shape) - 1 if p.leading else args[at].dim() == len(p.shape)
                torch._check(fits, lambda: f"{self.qualified}: '{p.name}' has {len(p.shape)} dims")
        for at, d, name in self._bindings:
            torch._check(args[at].shape[d] == names[name],
                         lambda: f"{self.qualified}: dim {d + args[at].dim()} of '{self.inputs[at].name}' is {name}, as another one is")
        return self._returned(self._make_outputs(args, keywords, names) if self.outputs else [])

    @staticmethod
    def _returned(outputs):
        return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)


class _Refused(torch.autograd.Function):
    """What an operator that changes tensors makes of tensors that require gradients."""

    @staticmethod
    def forward(ctx, op, call, *args):
        ctx.op = op
        return call(*args)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError(f"{ctx.op.qualified} has no gradient: it changes tensors in place")


def _register_changes(owner, op):
    """Of an operator that changes tensors: autograd hears of it, so that a gradient that needs the old values is an error, not a wrong number."""
    changed = [at for at, p in enumerate(op.inputs) if p.mode == "inout"]

    def autograd(keyset, *args, **keywords):
        def call(*args):
            with torch._C._AutoDispatchBelowAutograd():
                return op.overload.redispatch(keyset & torch._C._after_autograd_keyset, *args, **keywords)
        tracked = torch.is_grad_enabled()
        for at in changed:
            if tracked and args[at].requires_grad:
                raise NotImplementedError(f"{op.qualified} changes '{op.inputs[at].name}', which requires a gradient, and has none: "
                                          "pass x.detach(), or call it under torch.no_grad()")
        tracked = tracked and op.outputs and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        return _Refused.apply(op, call, *args) if tracked else call(*args)

    def version(keyset, *args, **keywords):
        for at in changed:
            torch.autograd.graph.increment_version(args[at])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return op.overload.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args, **keywords)

    owner.impl(op.name, autograd, "Autograd", with_keyset=True)
    owner.impl(op.name, version, "ADInplaceOrView", with_keyset=True)


class _Gradient:
    """The gradient of an operator by another one, whose parameters say what they are: names of inputs and outputs of the
    first, `dNAME` of an output for its gradient, and, written, `dNAME` of an input. An output whose gradient it does not take
    is not differentiable; an input whose gradient it does not write has none."""

    def __init__(self, forward, backward):
        self.forward, self.backward = forward, backward
        self.inputs = [p.name for p in forward.inputs]
        self.outputs = [p.name for p in forward.outputs]
        self.made = [p.name for p in backward.outputs]
        self.problem = self._problem()

    def _problem(self):
        known = {*self.inputs, *self.outputs, *(f"d{name}" for name in self.outputs)}
        gradients = {f"d{p.name}" for p in self.forward.inputs if p.is_tensor}
        for p in self.backward.kernel.params:
            if p.name not in (known if p.mode in (None, "in") else gradients):
                return f"'{p.name}' of {self.backward.name} is neither a tensor of {self.forward.name} nor a gradient of one"
        return "it has further keywords" if self.backward.extras else None

    def setup(self, ctx, inputs, output, keyword_only_inputs=None):
        outputs = output if isinstance(output, tuple) else (output,)
        values = dict(zip(self.inputs, inputs)) | dict(zip(self.outputs, outputs))
        used = [p.name for p in self.backward.inputs if p.name in values]
        shown = [p.name for p in self.backward.inputs if p.mode == "inout"]
        ctx.tensors = [name for name in dict.fromkeys(used + [name[1:] for name in shown]) if isinstance(values[name], torch.Tensor)]
        ctx.save_for_backward(*(values[name] for name in ctx.tensors))
        ctx.scalars = {name: values[name] for name in used if name not in ctx.tensors}
        taken = {p.name for p in self.backward.inputs}
        ctx.mark_non_differentiable(*(o for name, o in zip(self.outputs, outputs) if f"d{name}" not in taken))
        ctx.types = {name: value.dtype for name, value in zip(self.inputs, inputs) if isinstance(value, torch.Tensor)}

    def __call__(self, ctx, *gradients):
        values = dict(zip(ctx.tensors, ctx.saved_tensors)) | ctx.scalars
        values |= {f"d{name}": gradient.contiguous() for name, gradient in zip(self.outputs, gradients)}
        for p in self.backward.inputs:   # sums begin at zero
            if p.mode == "inout":
                x = values[p.name[1:]]
                values[p.name] = torch.zeros_like(x, dtype=_arrays.torch_type(p.type), memory_format=torch.contiguous_format)
        made = self.backward(*(values[p.name] for p in self.backward.inputs))
        made = made if isinstance(made, tuple) else () if made is None else (made,)
        found = dict(zip(self.made, made)) | {p.name: values[p.name] for p in self.backward.inputs if p.mode == "inout"}
        out = [found.get(f"d{name}") for name in self.inputs]
        return tuple(None if g is None else g.to(ctx.types[name]) for name, g in zip(self.inputs, out))


def _register(namespace, op):
    owner = _libraries.setdefault(namespace, library.Library(namespace, "FRAGMENT"))
    owner.define(op.name + op.schema, tags=_TAGS)
    for key in ("CPU", "CUDA"):
        owner.impl(op.name, op.run, key)
    library.register_fake(op.qualified, op.shape_of_outputs, lib=owner)
    op.overload = getattr(getattr(torch.ops, namespace), op.name).default
    if not op.is_functional:
        _register_changes(owner, op)


def _no_gradient(op, why):
    def backward(ctx, *gradients):
        raise NotImplementedError(f"{op.qualified} has no gradient: {why}")

    def setup(ctx, inputs, output, keyword_only_inputs=None):
        pass
    return backward, setup


def _register_gradient(namespace, op, backward):
    if not op.is_functional or not op.outputs:
        return
    why = f"its source has no kernel {op.name}_backward"
    gradient = _Gradient(op, backward) if backward else None
    call, setup = (gradient, gradient.setup) if gradient and not gradient.problem else _no_gradient(op, gradient.problem if gradient else why)
    library.register_autograd(op.qualified, call, setup_context=setup, lib=_libraries[namespace])


def _is_callable(kernel):
    """Kernels that only a program calls may take what no host has: tensor maps."""
    return all(p.type in _tilec.types or p.type in kernel.type_names for p in kernel.params)


class Operators(dict):
    """Operators by name; also as attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the source has no kernel '{name}'; it has {', '.join(self)}") from None


def _again(loaded, name):
    """An operator that was pickled: its source is registered, if it is not."""
    return load(**loaded)[name]


def load(path: str | os.PathLike | None = None, /, *, source: str | bytes | None = None, name: str = "<source>", namespace: str = "tilec",
         only: Collection[str] | None = None, gradients: dict[str, str] | None = None, pdl: bool = False,
         independent: Collection[str] = (), **values: object) -> Operators:
    """Registers the kernels and programs of a file, or of the text `source`, as torch.ops.NAMESPACE.NAME; returns them by name.

    `only`: names of those to register. `gradients`: by name of a kernel that of the kernel of its gradient, where it is not
    NAME_backward. `pdl`, `independent`: as tilec.load has them. `values`: of compile-time names, tunables and consts of the file. A name is
    registered once in a process: the same source again gives the same operators, another one needs another namespace.
    """
    kernels = _load(path, source=source, name=name, pdl=pdl, independent=independent, **values)
    for given in [*(only or ()), *(gradients or {}), *(gradients or {}).values()]:
        if given not in kernels:
            raise ValueError(f"{kernels.name} has no kernel '{given}'; it has {', '.join(kernels)}")
    folder = os.path.dirname(kernels.name) if _IMPORT.search(kernels.text) else None   # elsewhere an import is another file
    out, new = Operators(), []
    for kernel in kernels.values():
        if kernel.name not in only if only is not None else not _is_callable(kernel):
            continue
        identity = (kernels.text, folder, pdl, kernels.independent, tuple(sorted((k, str(v)) for k, v in kernel.values.items())))
        known = _operators.get(f"{namespace}::{kernel.name}")
        if known and known.identity != identity:
            raise ValueError(f"torch.ops.{namespace}.{kernel.name} is of another source, or has other values: pass namespace=")
        out[kernel.name] = known or Operator(namespace, kernel)
        if not known:
            out[kernel.name].identity = identity
            out[kernel.name].loaded = {"source": kernels.text, "name": kernels.name, "namespace": namespace, "only": only, "gradients": gradients,
                                       "pdl": pdl, "independent": independent, **values}
            new.append(out[kernel.name])
    for op in new:
        _register(namespace, op)
        _operators[op.qualified] = op
    for op in new:
        _register_gradient(namespace, op, out.get((gradients or {}).get(op.name, f"{op.name}_backward")))
    return out
