#!/usr/bin/env python3
"""Hand-written Hopper attention on a GPU: right at awkward lengths, and how fast beside cuDNN and PyTorch's FlashAttention.

    hopper_attention.py FOLDER [--tokens 16384] [--lengths 1024,4096,16384] [--rounds 9]

FOLDER holds libtilec-launch.so, NAME.cubin and NAME.causal.cubin, the latter built with -D CAUSAL=true, of one kernel
each (the table has the names of the files): attention forward, bf16, [B, H, S, D]. Needs PyTorch, no compiler. Every kernel
is checked in a process of its own, so that a fault or a deadlock of one does not end the others.
"""
import argparse
import pathlib
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from hopper_gemm import in_child

WIDTH = 2048   # heads times head dim
BOUND = 1.05 * 2.0 ** -7   # the weights and the result are each rounded to bf16: 2^-8
PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}

# B, H, S, T: one row and one key; a block and one row more; ragged in both; more queries than keys and the reverse; more
# tiles than multiprocessors.
SHAPES = [(1, 1, 1, 1), (1, 2, 129, 257), (2, 3, 777, 1000), (1, 4, 1000, 333), (3, 5, 64, 1999), (5, 16, 1111, 1111),
          (2, 40, 512, 640)]


class Attention:
    def __init__(self, folder, stem):
        import cubins
        self.name, self.causal = stem, stem.endswith(".causal")
        artefact = cubins.Artefact(folder / f"{stem}.cubin")
        self.kernel = artefact.kernel(next(iter(artefact.entries)))
        self.dim = int(self.kernel.entry["variants"][0]["params"][0]["shape"][-1])

    def bind(self, q, k, v, o):
        return self.kernel.bind([q, k, v, o, self.dim ** -0.5])


def operands(b, h, s, t, d):
    return [torch.randn(b, h, length, d, device="cuda").to(torch.bfloat16) for length in (s, t, t)]


def exact(q, k, v, causal):
    """The result, and the same of the absolute values: roundings are relative to that."""
    scores = q.float() @ k.float().transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        s, t = scores.shape[2:]
        scores.masked_fill_(torch.ones(s, t, dtype=torch.bool, device="cuda").triu(1), float("-inf"))
    weights = scores.softmax(3)
    return weights @ v.float(), weights @ v.float().abs()


def check(folder, stem):
    attention = Attention(folder, stem)
    for b, h, s, t in SHAPES:
        for growing in (False, True):
            q, k, v = operands(b, h, s, t, attention.dim)
            if growing:   # maxima that grow from block to block: the output is rescaled
                k *= torch.linspace(4, 0.1, t, device="cuda").to(torch.bfloat16)[:, None]
            o = torch.full_like(q, float("nan"))
            launch = attention.bind(q, k, v, o)
            launch()
            torch.cuda.synchronize()
            first, (want, size) = o.clone(), exact(q, k, v, attention.causal)
            error = ((first.float() - want).abs() / size).max().item()
            changed = 0
            for _ in range(5):   # the same bits again and again
                o.fill_(float("nan"))
                launch()
                changed += (o != first).sum().item()
            good = error <= BOUND and not torch.isnan(first).any() and changed == 0
            if not good or growing:
                print(f"{stem:26} {b}x{h}x{s}x{t}: {'ok' if good else 'WRONG'}, error {error:.1e}"
                      f"{f', {changed} changed' if changed else ''}", flush=True)
            if not good:
                print("   wrong from", ((first.float() - want).abs() > 0.1).nonzero()[:3].tolist())
                return False
    return True


def peer(backend, q, k, v, causal):
    def launch():
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return launch


def times(folder, stems, tokens, lengths, rounds):
    import measure
    attentions = [Attention(folder, stem) for stem in stems]
    for causal in (False, True):
        for dim in sorted({attention.dim for attention in attentions}, reverse=True):
            own = [a for a in attentions if a.dim == dim and a.causal == causal]
            for length in lengths if own else []:
                q, k, v = operands(tokens // length, WIDTH // dim, length, length, dim)
                candidates = {name: [peer(backend, q, k, v, causal)] for name, backend in PEERS.items()}
                for attention in own:
                    candidates[attention.name] = [attention.bind(q, k, v, torch.empty_like(q))]
                samples = measure.compare(candidates, rounds)
                work = 4 * tokens * length * WIDTH / (2 if causal else 1)
                for name, mine in samples.items():
                    speed = measure.spread([work / t / 1e9 for t in mine])
                    ratio = measure.spread([theirs / t for theirs, t in zip(samples["cudnn"], mine)])
                    print(f"d{dim} {'causal' if causal else 'full':6} {length:5}: {name:20} {speed.median:6.1f} TFLOP/s   "
                          f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--tokens", type=int, default=16384)
    arguments.add_argument("--lengths", default="1024,4096,16384")
    arguments.add_argument("--rounds", type=int, default=9)
    options = arguments.parse_args()
    stems = sorted(path.stem for path in options.folder.glob("*.cubin"))
    good = [stem for stem in stems if in_child(lambda: check(options.folder, stem), 25)]
    print("not right:", [stem for stem in stems if stem not in good], flush=True)
    lengths = [int(length) for length in options.lengths.split(",")]
    in_child(lambda: times(options.folder, good, options.tokens, lengths, options.rounds), 120)
    return 0 if good == stems else 1


if __name__ == "__main__":
    sys.exit(main())
