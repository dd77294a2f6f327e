#!/usr/bin/env python3
"""What bench/suite.py measures and how it reports, without a device: the samples are those that bench/problems.py promises.

    bench_suite.py SOURCE
"""
import json
import math
import pathlib
import py_compile
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
BENCH = SOURCE / "bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
import problems  # noqa: E402

COUNT = 2000
FIRST = [(9216, 4352, 3392), (64, 320, 10752), (1016, 5408, 3528), (547, 9694, 2888)]


def suite(*arguments, seed="0", status=0):
    done = subprocess.run([sys.executable, BENCH / "suite.py", *map(str, arguments)], capture_output=True, text=True,
                          env={"PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"})
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done.stdout


def share(values):
    values = list(values)
    return sum(values) / len(values)


def models():
    assert len(problems.models()) == 40 == len({m.name for m in problems.models()})
    for m in problems.models():
        assert m.heads % m.kv == 0 and m.dim % 8 == 0 and m.hidden / 2 <= m.heads * m.dim <= 2 * m.hidden, m


def the_same_everywhere():
    for kind in problems.KINDS:
        whole = problems.problems(kind, "fitting", 40)
        assert whole == problems.problems(kind, "fitting", 48)[:40]
        shards = [problems.problems(kind, "fitting", 40, (i, 3)) for i in (1, 2, 3)]
        assert sorted(sum(shards, []), key=lambda pair: pair[0]) == whole
        for shard in shards:
            assert len({p.stratum for _, p in shard}) == len({p.stratum for _, p in whole})
        assert suite(kind, "--list", "--count", 40, seed="1") == suite(kind, "--list", "--count", 40, seed="2")
    # The fitting set is what figures of different days are compared by: it does not change.
    assert [p.shape for _, p in problems.problems("gemm", "fitting", 4)] == FIRST, problems.problems("gemm", "fitting", 4)


def sets_differ():
    for kind in problems.KINDS:
        fitting, validation = ({p for _, p in problems.problems(kind, seed, 500)} for seed in ("fitting", "a hash"))
        assert len(fitting & validation) < 25, (kind, fitting & validation)


def products():
    drawn = [p for _, p in problems.problems("gemm", "any seed", COUNT)]
    for stratum, multiple, fraction in (("multiples of 64", 64, 1 / 2), ("multiples of 8", 8, 1 / 4), ("any", 1, 1 / 4)):
        mine = [p.shape for p in drawn if p.stratum == stratum]
        assert len(mine) == fraction * COUNT
        assert all(extent % multiple == 0 for shape in mine for extent in shape)
        odd = share(any(extent % (2 * multiple) for extent in shape) for shape in mine)
        assert 0.8 < odd < 0.95, (stratum, odd)   # of three extents, seven of eight times
    for m, n, k in (p.shape for p in drawn):
        assert 2 * m * n * k <= problems.WORK and min(m, n, k) >= 1
    assert 0.2 < share(p.shape[0] <= 64 for p in drawn) < 0.5     # decoding
    assert 0.2 < share(p.shape[0] >= 2048 for p in drawn) < 0.5   # prefill, training
    assert share(max(p.shape[1:]) > 30000 for p in drawn) > 0.02  # vocabularies


def rows():
    drawn = [p for _, p in problems.problems("rows", "any seed", COUNT)]
    for name in problems.ROWS:
        assert 0.2 < share(p.bench == name for p in drawn) < 0.3
    widths = [p.shape[1] for p in drawn]
    assert share(width % 8 == 0 for width in widths) < 0.9 and min(widths) < 64 and max(widths) > 500_000
    assert all(dict(p.fixed)["N"] == p.shape[1] for p in drawn)


def attention():
    drawn = [p for _, p in problems.problems("attention", "any seed", COUNT)]
    batch, heads, kv, queries, keys, dims, causal, rows = zip(*(p.shape for p in drawn))
    assert share(count == 1 for count in queries) >= 0.25 and share(causal) > 0.15 and 0.4 < share(rows) < 0.6
    assert share(a > b for a, b in zip(heads, kv)) > 0.2 and all(a % b == 0 for a, b in zip(heads, kv))
    assert set(dims) >= set(range(16, 257, 8)) and max(keys) > 50_000
    assert all(p.shape[3] == p.shape[4] for p in drawn if p.shape[6]) and all(dict(p.fixed)["D"] == p.shape[5] for p in drawn)


def artefacts_are_there():
    for kind in problems.KINDS:
        lines = suite(kind, "--artefacts", "--count", 40).splitlines()
        assert lines == sorted(set(lines)) and lines
        for line in lines:
            name, file, *settings = line.split()
            text = (SOURCE / file).read_text()
            assert re.search(rf"^(kernel|program) {name}\b", text, re.M), line
            for setting in settings:
                key = setting.partition("=")[0]
                assert re.search(rf"^(kernel|program) {name}\[{key}(: type( in \{{[^}}]*\}})?)?\]|^const {key}\b", text, re.M), line
    assert suite("gemm", "--artefacts") == "gemm examples/gemm.tile\n"


def row(number, ratio, stratum="any"):
    return {"number": number, "problem": f"gemm {number}", "stratum": stratum, "unit": "TFLOP/s", "best_peer": "cublaslt",
            "candidates": {"tilec": {"median": 100 * ratio, "variant": f"gemm__{number}"}, "cublaslt": {"median": 100}},
            "ratios": {"tilec": {"cublaslt": {"median": ratio}}}}


def figures():
    rows = [row(i, ratio, stratum) for i, (ratio, stratum) in enumerate([(0.5, "any"), (2.0, "any"), (0.9, "multiples of 8"), (1.1, "multiples of 8")])]
    rows.append({"number": 4, "problem": "gemm 4", "stratum": "any"})
    text = problems.report(rows, worst=2)
    assert "   2 problems, geometric mean 1.000,  50.0 % at 0.90 or above, least 0.500" in text[0], text
    assert f"{math.sqrt(0.99):.3f}, 100.0 %" in text[1], text
    assert "   4 problems" in text[2] and " 75.0 %" in text[2], text
    assert text[3] == "without a ratio (1): gemm 4", text
    assert [line.split()[0] for line in text[5:]] == ["0.500", "0.900"] and text[5].endswith("gemm__0"), text


def shards_are_joined():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for i, seed in enumerate(("x", "x", "y")):
            (folder / f"{i}.json").write_text(json.dumps({"kind": "gemm", "seed": seed, "rows": [row(i, 1.0), row(9, 0.25)]}))
        text = suite("--report", folder / "0.json", folder / "1.json")
        assert "   3 problems, geometric mean 0.630" in text, text   # number 9 counts once
        suite("--report", folder / "0.json", folder / "2.json", status=1)


def arguments():
    suite(status=2)
    suite("gemm", "--shard", "0/4", "--list", status=2)
    assert len(suite("gemm", "--list", "--count", 8).splitlines()) == 8
    assert suite("gemm", "--list", "--shapes", "1x2x3,4x5x6").split()[-1] == "4x5x6"
    assert suite("gemm", "--list", "--seed", "a") != suite("gemm", "--list", "--seed", "b")


def all_files_compile():   # they run on a device only
    with tempfile.TemporaryDirectory() as folder:
        for file in BENCH.glob("*.py"):
            py_compile.compile(str(file), cfile=f"{folder}/compiled", doraise=True)


for test in (models, the_same_everywhere, sets_differ, products, rows, attention, artefacts_are_there, figures, shards_are_joined, arguments,
             all_files_compile):
    test()
