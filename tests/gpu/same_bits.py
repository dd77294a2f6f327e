"""The same bits in every run: persistent kernels of random_gemm.py, launched ten thousand times each.

Usage: same_bits.py FOLDER [RUNS]    FOLDER as made by `run.sh prepare`; TILEC_LAUNCH names libtilec-launch.so (bench/build.sh)
"""

import pathlib
import re
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "bench"))
sys.path.insert(0, str(pathlib.Path(__file__).parent / "bench"))
from cubins import Artefact

folder = pathlib.Path(sys.argv[1])
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
BATCH = 100   # at most so many runs in a graph
ALIGNED = 256   # elements from one output to the next: the same variant serves all
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "e4m3": torch.float8_e4m3fn,
         "e5m2": torch.float8_e5m2, "i8": torch.int8, "i32": torch.int32}
KERNEL = re.compile(r"kernel (\w+)\(A: (\w+)\[(\w), (\w)\], B: \w+\[(\w), (\w)\], C: out (\w+)\[M, N\]\) \{\n(.*)\n")
TEST = r"test {} \(M = (\d+), N = (\d+), K = (\d+)\)"


def random(dtype, *shape):
    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, device="cuda", dtype=dtype)
    return torch.randn(*shape, device="cuda").to(dtype)


def differs(artefact, name, types, shapes, sizes):
    """How many of so many runs, `batch` of them in a graph, each into an output of its own, differ from a first one."""
    a, b = (random(TYPES[types[0]], *(sizes[d] for d in shape)) for shape in shapes)
    first = torch.empty(sizes["M"], sizes["N"], device="cuda", dtype=TYPES[types[1]])
    artefact.kernel(name).bind([a, b, first])()
    batch = max(d for d in range(1, BATCH + 1) if runs % d == 0)
    count, separate = first.numel(), -(-first.numel() // ALIGNED) * ALIGNED
    outputs = first.new_empty(batch, separate)
    launches = [artefact.kernel(name).bind([a, b, output[:count].view(first.shape)]) for output in outputs]
    want, got = first.view(-1).view(torch.uint8), outputs.view(torch.uint8)[:, :first.nbytes]
    bad = torch.zeros((), device="cuda", dtype=torch.int64)

    def work():
        outputs.fill_(77)
        for launch in launches:
            launch()
        bad.add_((got != want).any(1).sum())

    work()   # loads what a capture must not
    torch.cuda.synchronize()
    bad.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for _ in range(runs // batch):
        graph.replay()
    return int(bad)


def main():
    kernels = wrong = 0
    start = time.monotonic()
    for source in sorted((folder / "src").glob("random_gemm_*.tile")):
        artefact, text = Artefact(folder / "cubin" / f"{source.stem}.0.cubin"), source.read_text()
        for name, elements, a0, a1, b0, b1, results, grid in KERNEL.findall(text):
            sizes = dict(zip("MNK", map(int, re.search(TEST.format(name), text).groups())))
            variants = artefact.kernel(name).entry["variants"]
            if "persistent" not in grid and not any("sms()" in variant.get("grid", "") for variant in variants if isinstance(variant, dict)):
                continue
            kernels += 1
            bad = differs(artefact, name, (elements, results), ((a0, a1), (b0, b1)), sizes)
            wrong += bad > 0
            if bad:
                print(f"FAIL  {source.stem} {name} {sizes}: {bad} of {runs} runs differ")
    print(f"same bits in {runs} runs: {kernels - wrong} of {kernels} persistent kernels, {time.monotonic() - start:.0f} s")
    return wrong > 0


sys.exit(main())
