"""What a benchmark is: a row of a table. gemm.py, attention.py and rows.py hold the rows; bench.py runs them.

    @bench("rows", "GB/s", shapes=[(32768, 4096)])
    def softmax(m, n):
        x, y = random(m, n), poisoned(m, n)
        return Problem(work=4 * m * n, out=y, want=torch.softmax(x.float(), -1),
                       ours=[Own("softmax", [x, y], N=n)],
                       peers={"torch": lambda: torch.softmax(x, -1), "triton": Choice(peers.softmax, settings, x, y)})
"""
import dataclasses
import inspect

import torch

BF16 = torch.bfloat16
FLOAT8 = torch.float8_e4m3fn
UNCHECKED = object()   # a peer returns it whose result is not looked at


class Choice:
    """A peer with settings to choose from: make(*arguments, *setting) gives a launch."""

    def __init__(self, make, settings, *arguments):
        self.make, self.settings, self.arguments = make, settings, arguments

    def launches(self):
        for setting in self.settings:
            yield "x".join(map(str, setting)), self.make(*self.arguments, *setting)


class Own:
    """A kernel or program of ours. `fixed` are the names that the shape fixes; every artefact that has them is tried (file
    names: KERNEL-NAME=VALUE-..., made by build.sh), and the one with no other name is the program as it stands."""

    def __init__(self, kernel, arguments, **fixed):
        self.kernel, self.arguments = kernel, arguments
        self.fixed = {f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in fixed.items()}


@dataclasses.dataclass
class Problem:
    work: float             # bytes (GB/s) or operations (TFLOP/s) of one launch
    out: object             # the tensor that candidates write (a tuple of several); what a peer returns is looked at instead
    want: object            # the right result, in higher precision
    ours: list              # of Own; the first one's artefact without settings is "tilec"
    peers: dict             # name -> a launch, a Choice, or an Own: another program of ours to compare with
    tolerance: float = 1e-2   # relative error in norm
    keep: object = None       # what must live as long as the launches
    prepare: object = None    # what makes `out` ready for a checked launch, where it is added to (else it is poisoned)


@dataclasses.dataclass
class Bench:
    name: str
    group: str
    unit: str
    shapes: list
    make: object
    rivals: tuple   # the peers that the ratio is taken to; (): the best of all
    label: object   # shape -> text


BENCHES = {}


def bench(group, unit, shapes, rivals=(), label=None, name=None):
    def add(make):
        BENCHES[name or make.__name__] = Bench(name or make.__name__, group, unit, shapes, make, rivals,
                                               label or (lambda *shape: "x".join(map(str, shape))))
        return make
    return add


def random(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def poisoned(*shape, dtype=BF16):
    return torch.full(shape, float("nan"), device="cuda", dtype=torch.float32).to(dtype)


def description(entry):
    return (inspect.getdoc(entry.make) or "").split("\n")[0]
