"""Every example at a large size on the device, against PyTorch.

Usage: large.py FOLDER [NAME...]    FOLDER as made by `run.sh prepare`
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

folder = pathlib.Path(sys.argv[1])
only = sys.argv[2:]
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def save(path, tensor):
    host = tensor.contiguous().cpu()
    if tensor.dtype == torch.bfloat16:
        numpy.save(path, host.view(torch.uint16).numpy().view("<V2"))
    else:
        numpy.save(path, host.numpy())


def load(path, dtype):
    data = numpy.load(path)
    if dtype == torch.bfloat16:
        return torch.from_numpy(data.view("<u2").copy()).view(torch.bfloat16).cuda()
    return torch.from_numpy(data).cuda()


def check(label, file, inputs, output, want, tolerance, choice=0, scalars=(), by_row=False):
    """Runs a program on the device and compares one output: |got - want| <= tolerance * (|want| + rms(want)).

    by_row: the rms is each row's, where rows differ in size (the first rows of causal attention average few keys).
    """
    if only and file not in only:
        return True
    with tempfile.TemporaryDirectory() as work:
        command = [folder / "tilec-gpu", "run", "--device=gpu", "--repeat=3", folder / f"src/{file}.tile",
                   f"--artefact={folder}/cubin/{file}.{choice}.cubin"]
        for name, tensor in inputs.items():
            save(f"{work}/{name}.npy", tensor)
            command.append(f"{name}={work}/{name}.npy")
        command += [*scalars, "-o", f"{output}={work}/out.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"FAIL  {label}: exit code {done.returncode}\n{done.stderr}")
            return False
        got = load(f"{work}/out.npy", want[1]).double()
    want = want[0].double()
    rms = want.square().mean(-1, keepdim=True).sqrt() if by_row else want.square().mean().sqrt()
    error = (got - want).abs() / (want.abs() + rms + 1e-30)
    worst = error.max().item()
    passed = got.shape == want.shape and worst <= tolerance   # NaN compares false
    print(f"{'ok   ' if passed else 'FAIL '} {label}: worst {worst:.2g} of {tolerance}; {done.stderr.strip()}", flush=True)
    return passed


def gemm(m, n, k):
    a, b = random(m, k), random(n, k)
    return check(f"gemm {m}x{n}x{k}", "gemm", {"A": a, "B": b}, "C", ((a.float() @ b.float().T), torch.bfloat16), 1e-2)


def gelu(m, n, k):
    a, b, bias = random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16), random(n, dtype=torch.float32)
    want = torch.nn.functional.gelu(a.float() @ b.float() + bias, approximate="tanh")
    return check(f"gemm_bias_gelu {m}x{n}x{k}", "gemm_bias_gelu", {"A": a, "B": b, "bias": bias}, "C",
                 (want, torch.float16), 1e-2)


def split_k(m, n, k):
    a, b = random(m, k, dtype=torch.float16), random(n, k, dtype=torch.float16)
    return check(f"gemm_split_k {m}x{n}x{k}", "gemm_split_k", {"A": a, "B": b}, "C",
                 (a.float() @ b.float().T, torch.float16), 1e-2)


def attention(batch, heads, s, t, d, causal):
    q, k, v = random(batch, heads, s, d), random(batch, heads, t, d), random(batch, heads, t, d)
    scores = q.float() @ k.float().transpose(-1, -2) * d**-0.5
    if causal:
        scores.masked_fill_(torch.ones(s, t, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    want = scores.softmax(-1) @ v.float()
    return check(f"attention {batch}x{heads}x{s}x{t}x{d}{' causal' if causal else ''}", "attention",
                 {"Q": q, "K": k, "V": v}, "O", (want, torch.bfloat16), 2e-2, int(causal), [f"scale={d**-0.5}"], by_row=True)


def vector_add(n):
    x, y = random(n, dtype=torch.float32), random(n, dtype=torch.float32)
    return check(f"vector_add {n}", "vector_add", {"x": x, "y": y}, "z", (x + y, torch.float32), 0)


def transpose(m, n):
    x = random(m, n, dtype=torch.float32)
    return check(f"transpose {m}x{n}", "transpose", {"x": x}, "y", (x.T, torch.float32), 0)


def softmax(m, n):
    x = random(m, n)
    return check(f"softmax {m}x{n}", "softmax", {"x": x}, "y", (x.double().softmax(-1), torch.bfloat16), 1e-2)


def rmsnorm(m, n):
    x, w = random(m, n), random(n)
    want = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w.double()
    return check(f"rmsnorm {m}x{n}", "rmsnorm", {"x": x, "w": w}, "y", (want, torch.bfloat16), 1e-2, 0, ["eps=1e-6"])


def center_columns(m, n):
    x = random(m, n, dtype=torch.float32)
    return check(f"center_columns {m}x{n}", "center_columns", {"x": x}, "y",
                 (x.double() - x.double().mean(0), torch.float32), 1e-3)


results = [
    vector_add(1 << 26), vector_add((1 << 24) + 1), transpose(8192, 8192), transpose(4097, 3001),
    softmax(16384, 4096), softmax(7777, 1000), rmsnorm(16384, 2048), center_columns(64, 1 << 18),
    gemm(4096, 4096, 4096), gemm(4096, 4096, 4097), gemm(4000, 4200, 4104), gelu(4096, 4096, 4096),
    gelu(1111, 999, 4097), split_k(128, 256, 65536), split_k(101, 203, 30011),
    attention(4, 8, 2048, 2048, 64, False), attention(2, 8, 2000, 3000, 128, False), attention(4, 8, 2048, 2048, 64, True),
]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(0 if all(results) else 1)
