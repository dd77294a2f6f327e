"""Random problems as models have them, for suite.py: shapes that are in no list.

Half of the numbers come from the configurations in `models`, with noise, half are log-uniform. A problem is a function of its kind,
the seed and its number, so that a shard or a longer list has the same ones. Two sets, whose problems have nothing in common but
their distribution:

    fitting      what thresholds, costs and lists of tiles may be made for; always the same
    validation   what the figures are taken from; its seed is the hash of the last commit that changes code, so that no code was fitted to them

Needs nothing but Python.
"""
import dataclasses
import functools
import math
import pathlib
import random
import subprocess

HERE = pathlib.Path(__file__).parent
CODE = ["codegen", "emulator", "examples", "frontend", "include", "ir", "layout", "passes", "runtime", "support", "target"]
WORK = 1 << 42         # operations of a problem at most: 6 ms of the fastest
ELEMENTS = 1 << 29     # of its largest tensor
NOISE = 0.25           # sizes of models are multiplied by exp(-NOISE) to exp(NOISE)


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    ffn: int
    heads: int
    kv: int
    dim: int
    vocabulary: int


@dataclasses.dataclass(frozen=True)
class Problem:
    bench: str     # its name in table.BENCHES
    stratum: str      # of the distribution, whose figures are told apart
    shape: tuple
    fixed: tuple = ()   # compile-time names of its artefact: (name, value)

    def __str__(self):
        return f"{self.bench} {'x'.join(map(str, self.shape))}"


@functools.cache
def models():
    lines = [line.split() for line in (HERE / "models").read_text().splitlines() if line and not line.startswith("#")]
    return [Model(name, *map(int, numbers)) for name, *numbers in lines]


def seed_of(name):
    """Of a set, or any text."""
    if name != "validation":
        return name
    commit = subprocess.run(["git", "-C", HERE, "log", "-1", "--format=%H", "--", *(str(HERE.parent / folder) for folder in CODE)],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    if not commit:
        raise SystemExit("no git here that knows the last commit with code: give --seed what `git log -1 --format=%H -- "
                         f"{' '.join(CODE)}` says where there is one")
    return commit


def _log_uniform(r, low, high):
    return math.exp(r.uniform(math.log(low), math.log(high)))


def _whole(value, multiple=1):
    return max(1, round(value / multiple)) * multiple


def _noisy(r, value):
    return value * math.exp(r.uniform(-NOISE, NOISE))


def _tokens(r):
    """Of a batch: one each (decoding), or sequences."""
    batch = 2 ** r.randrange(8)
    return batch if r.random() < 1 / 3 else batch * _log_uniform(r, 32, 8192)


# ---- products ----

STRATA = {0: ("multiples of 64", 64), 1: ("multiples of 64", 64), 2: ("multiples of 8", 8), 3: ("any", 1)}


def _product(r):
    if r.random() < 0.5:
        return tuple(_log_uniform(r, least, 16384) for least in (1, 128, 128))
    m = r.choice(models())
    n, k = r.choice([((m.heads + 2 * m.kv) * m.dim, m.hidden), (m.hidden, m.heads * m.dim), (m.ffn, m.hidden), (2 * m.ffn, m.hidden),
                     (m.hidden, m.ffn), (m.vocabulary, m.hidden)])
    return tuple(_noisy(r, extent) for extent in (_tokens(r), n, k))


def gemm(r, number, bench="gemm", fixed=()):
    """Half multiples of 64, a quarter multiples of 8, a quarter any."""
    stratum, multiple = STRATA[number % len(STRATA)]
    return _gemm(r, stratum, multiple, bench, fixed)


def gemm_fp8(r, number):
    """Multiples of 16: cublasLt has no others."""
    return _gemm(r, "multiples of 16", 16, "gemm_fp8")


def _gemm(r, stratum, multiple, bench, fixed=()):
    while True:
        m, n, k = (_whole(extent, multiple) for extent in _product(r))
        if 2 * m * n * k <= WORK and max(m * n, n * k, m * k) <= ELEMENTS:
            return Problem(bench, stratum, (m, n, k), fixed)


# ---- rows ----

ROWS = ("softmax", "rmsnorm", "layer_norm", "cross_entropy")
WIDEST = 1 << 20


def rows(r, number):
    """Half widths of models, a quarter multiples of 8 near to them, a quarter any."""
    name, m = r.choice(ROWS), r.choice(models())
    width = m.vocabulary if name == "cross_entropy" else r.choice([m.hidden, m.heads * m.dim, m.ffn])
    stratum, width = {0: ("as in models", width), 1: ("as in models", width), 2: ("multiples of 8", _whole(_noisy(r, width), 8)),
                   3: ("any", _whole(_log_uniform(r, 2, WIDEST)))}[number % 4]
    while True:
        count = _whole(_tokens(r))
        if count * width <= ELEMENTS:
            return Problem(name, stratum, (count, width), (("N", width),))


# ---- attention ----

KEYS = 100_000


def attention(r, number):
    """A quarter with one query; the others with as many keys as queries, or not. Half have the model's grouped heads, half lie in memory as
    [B, S, H, D]. Shape: batch, heads, heads of keys, queries, keys, head dim, causal, whether sequences come before heads."""
    while True:
        m = r.choice(models())
        dim = m.dim if r.random() < 0.5 else 8 * r.randrange(2, 33)
        batch, keys = 2 ** r.randrange(7), _whole(_log_uniform(r, 1, KEYS))
        stratum = ("one query", "as many keys", "as many keys", "other keys")[number % 4]
        queries = {"one query": 1, "as many keys": keys, "other keys": _whole(_log_uniform(r, 2, 8192))}[stratum]
        causal = stratum == "as many keys" and r.random() < 0.5
        group, rows = r.choice([1, m.heads // m.kv]), r.random() < 0.5
        if 4 * batch * m.heads * queries * keys * dim <= WORK and batch * m.heads * max(queries, keys) * dim <= ELEMENTS // 2:
            return Problem("attention_any", stratum, (batch, m.heads, m.heads // group, queries, keys, dim, causal, rows),
                           (("D", dim), ("CAUSAL", causal), ("GROUP", group)))


def _gemm_of(bench, **fixed):
    return lambda r, number: gemm(r, number, bench, tuple(fixed.items()))


KINDS = {"gemm": gemm, "gemm_f16": _gemm_of("gemm_f16", E="f16"), "gemm_tf32": _gemm_of("gemm_tf32", E="f32"), "gemm_fp8": gemm_fp8,
         "rows": rows, "attention": attention}
# A benchmark's kernel and its file, where the names are others.
KERNELS = {"attention_any": ("attention", "examples/attention.tile"), "gemm_f16": ("gemm", "examples/gemm.tile"),
           "gemm_tf32": ("gemm", "examples/gemm.tile")}


def problem(kind, seed, number):
    return KINDS[kind](random.Random(f"{kind} {seed} {number}"), number)


def problems(kind, seed, count, shard=(1, 1)):
    """[(number, problem)] of a shard, the first of which is (1, N). All strata are in each."""
    index, shards = shard
    return [(number, problem(kind, seed, number)) for number in range(count) if (number // len(STRATA)) % shards == index - 1]


def launch(p):
    """The setting of an artefact for this product alone."""
    m, n, k = p.shape
    return f"for=M:{m},N:{n},K:{k}"


def artefacts(chosen, alone=False):
    """What build.sh has to compile, as lines of its list; `alone`: an artefact for each problem."""
    lines = set()
    for p in chosen:
        name, file = KERNELS.get(p.bench, (p.bench, f"examples/{p.bench}.tile"))
        settings = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in p.fixed]
        settings += [launch(p)] if alone else []
        lines.add(" ".join([name, file, *settings]))
    return sorted(lines)


# ---- figures ----

ENOUGH = 0.90   # of the peer's speed: slower is counted


def figures(ratios):
    if not ratios:
        return "none"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    enough = sum(ratio >= ENOUGH for ratio in ratios) / len(ratios)
    return f"{len(ratios):4} problems, geometric mean {mean:.3f}, {100 * enough:5.1f} % at {ENOUGH:.2f} or above, least {min(ratios):.3f}"


def ratio_of(row):
    """Ours over the best peer's speed; None: one of them is missing."""
    return row.get("ratios", {}).get("tilec", {}).get(row.get("best_peer"), {}).get("median")


def report(rows, worst=10):
    """Lines about the rows of one or several shards."""
    known = [row for row in rows if ratio_of(row)]
    lines = [f"{stratum:16} {figures([ratio_of(row) for row in known if row['stratum'] == stratum])}"
             for stratum in sorted({row["stratum"] for row in rows})]
    lines += [f"{'all':16} {figures([ratio_of(row) for row in known])}"]
    missing = [row["problem"] for row in rows if not ratio_of(row)]
    if missing:
        lines += [f"without a ratio ({len(missing)}): {'; '.join(missing)}"]
    lines += [f"the {min(worst, len(known))} slowest:"]
    for row in sorted(known, key=ratio_of)[:worst]:
        c = row["candidates"]
        lines += [f"  {ratio_of(row):.3f} of {row['best_peer']:9} {row['problem']:36} {c['tilec']['median']:7.0f} {row['unit']}  "
                  f"{c['tilec'].get('variant', '')}"]
    return lines
