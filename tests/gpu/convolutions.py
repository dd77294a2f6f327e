#!/usr/bin/env python3
"""Convolutions of many shapes on a device against torch.nn.functional: strides, padding, dilation, 1-d to 3-d, groups, gradients.

    convolutions.py prepare TILEC FOLDER      here: compiles each case to FOLDER, with the library that launches it
    convolutions.py run FOLDER                there, with a GPU and PyTorch; no compiler

Every case is compared with the same convolution in f32 of the same numbers. Rows whose last place leaves room (a stride that does
not divide) are among them, and results smaller than padding and taps give.
"""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORWARD, BACKWARD = "examples/convolution.tile", "examples/convolution_backward.tile"
VOLUME, PROGRAMS = "examples/convolution_3d.tile", "tests/programs/convolutions.tile"

# (kernel, file, names that are fixed, shapes: images, extents, channels, filters)
CASES = [
    *(("convolution", FORWARD, dict(R=r, S=s, STRIDE=t, PAD=p, DIL=d), shapes)
      for r, s, t, p, d, shapes in (
          (3, 3, 1, 1, 1, [(2, (14, 14), 64, 64), (3, (13, 17), 72, 200), (1, (1, 1), 8, 8), (2, (28, 28), 256, 128), (1, (9, 130), 24, 96)]),
          (3, 3, 2, 1, 1, [(2, (28, 28), 64, 128), (3, (13, 18), 40, 64)]),
          (1, 1, 1, 0, 1, [(4, (14, 14), 256, 64), (1, (7, 9), 64, 48)]),
          (1, 1, 2, 0, 1, [(2, (15, 14), 64, 72)]),
          (7, 7, 2, 3, 1, [(2, (56, 56), 8, 64), (1, (23, 30), 16, 64)]),
          (5, 5, 1, 2, 1, [(2, (12, 11), 32, 64)]),
          (3, 2, 3, 2, 2, [(2, (20, 23), 16, 40)]),
          (3, 3, 1, 4, 4, [(2, (19, 21), 64, 64)]),
      )),
    *(("convolution_data", BACKWARD, dict(R=r, STRIDE=t, PAD=p), shapes)
      for r, t, p, shapes in (
          (3, 1, 1, [(2, (14, 15), 64, 72)]),
          (3, 2, 1, [(2, (28, 28), 64, 64), (1, (9, 12), 40, 24)]),
          (7, 2, 3, [(1, (23, 24), 16, 64)]),
          (1, 1, 0, [(2, (14, 14), 64, 256)]),
      )),
    *(("convolution_filter", BACKWARD, dict(R=r, S=r, STRIDE=t, PAD=p), shapes)
      for r, t, p, shapes in (
          (3, 1, 1, [(2, (14, 15), 64, 72)]),
          (3, 2, 1, [(2, (28, 28), 64, 64), (1, (9, 12), 40, 24)]),
          (1, 1, 0, [(2, (14, 14), 64, 256)]),
      )),
    *(("convolution_3d", VOLUME, dict(T=k, R=k, S=k, STRIDE=t, PAD=p), shapes)
      for k, t, p, shapes in (
          (3, 1, 1, [(2, (5, 9, 10), 64, 64), (1, (4, 7, 13), 24, 40)]),
          (3, 2, 1, [(1, (8, 11, 12), 32, 64)]),
      )),
    *(("line", PROGRAMS, dict(S=s, STRIDE=t, PAD=p, DIL=d), shapes)
      for s, t, p, d, shapes in (
          (5, 1, 2, 1, [(3, (50,), 40, 72)]),
          (3, 2, 3, 4, [(2, (210,), 64, 64)]),
      )),
    ("grouped", PROGRAMS, dict(R=3), [(2, (14, 13), 256, 128, 4), (1, (9, 9), 128, 256, 2), (1, (5, 6), 24, 48, 3)]),
]


def name_of(kernel, fixed):
    return "-".join([kernel, *(f"{name}={value}" for name, value in fixed.items())]) + ".cubin"


def prepare(tilec, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tilec = pathlib.Path(tilec).resolve()
    shutil.copy(tilec.parent / "libtilec.so", folder / "libtilec-launch.so")
    for kernel, file, fixed, _ in CASES:
        defines = [f"-D{name}={value}" for name, value in fixed.items()]
        subprocess.run([tilec, "build", ROOT / file, f"--only={kernel}", "--target=sm_90a", *defines, "-o",
                        folder / name_of(kernel, fixed)], check=True)


def extents_of(spatial, taps, stride, pad, dilation):
    return [(n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(spatial, taps)]


def last_to_second(x):   # [N, .., C] to [N, C, ..]
    return x.movedim(-1, 1)


def check(launchers, kernel, fixed, shape):
    import torch
    from torch.nn import functional, grad
    b, spatial, c, n, *groups = shape
    groups = groups[0] if groups else 1
    dims = len(spatial)
    taps = [fixed.get(name, fixed.get("R", 0)) for name in "TRS"[3 - dims:]]
    stride, pad, dilation = fixed.get("STRIDE", 1), fixed.get("PAD", 1 if kernel == "grouped" else 0), fixed.get("DIL", 1)
    kind = torch.float16 if kernel == "line" else torch.bfloat16
    make = lambda *s: torch.randn(*s, device="cuda").to(kind)   # noqa: E731
    result = extents_of(spatial, taps, stride, pad, dilation)
    x, f, y = make(b, *spatial, c), make(*taps, c // groups, n), make(b, *result, n)
    forward = [functional.conv1d, functional.conv2d, functional.conv3d][dims - 1]
    filters = f.float().movedim(-1, 0).movedim(-1, 1)   # [.., C, N] to [N, C, ..]
    options = dict(stride=stride, padding=pad, dilation=dilation, groups=groups)
    if kernel == "convolution_data":
        out = torch.full((b, *spatial, c), float("nan"), device="cuda", dtype=kind)
        want = grad.conv2d_input((b, c, *spatial), filters, last_to_second(y).float(), **options).movedim(1, -1)
        tensors = [y, f, out]
    elif kernel == "convolution_filter":
        out = torch.full((*taps, c, n), float("nan"), device="cuda", dtype=torch.float32)
        weights = grad.conv2d_weight(last_to_second(x).float(), filters.shape, last_to_second(y).float(), **options)
        want, tensors = weights.movedim(1, -1).movedim(0, -1), [x, y, out]
    else:
        out = torch.full_like(y, float("nan"))
        want = forward(last_to_second(x).float(), filters, **options).movedim(1, -1)
        tensors = [x, f, out]
    entry = launchers.kernel(kernel)
    scalars = [fixed[p["name"]] for p in entry.entry["variants"][0]["params"] if "shape" not in p]
    entry.bind([*tensors, *scalars])()
    torch.cuda.synchronize()
    error = ((out.float() - want).norm() / want.norm()).item()
    return error if error == error else float("inf")


def run(folder):
    sys.path += [str(ROOT / "bench"), str(folder)]
    import torch
    from cubins import Artefact
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    wrong = count = 0
    for kernel, _, fixed, shapes in CASES:
        artefact = Artefact(folder / name_of(kernel, fixed))
        for shape in shapes:
            error = check(artefact, kernel, fixed, shape)
            count += 1
            wrong += error > 1e-2
            print("ok   " if error <= 1e-2 else "WRONG", name_of(kernel, fixed)[:-6], shape, f"{error:.1e}", flush=True)
    print(f"{count - wrong} passed, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "prepare":
        prepare(sys.argv[2], pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        sys.exit(run(pathlib.Path(sys.argv[2]).resolve()))
    else:
        sys.exit(__doc__)
