#!/usr/bin/env python3
"""The launcher that `tilec build --emit=launcher` writes decides as tilec_launch does: launcher.py BUILD SOURCE [--shapes 10000] [--only REGEX]

For some examples: the launcher is compiled as C99 and as C++11 with all warnings as errors, and called on random shapes (some of them
wrong, or of too little workspace, or one that is not aligned, or a module that is not loaded) against a driver that notes what it gets.
tilec_launch gets the same: the notes, with kernels, grids and all parameters, and whether the call succeeds, are the same.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

EXAMPLES = {   # what has to be fixed: kernels of one and many variants, programs with scratch, fills and regions, maps, windows, scalars
    "forms": [], "vector_add": [], "softmax": ["N=4096"], "gemm": [], "gemm_split_k": [], "gemm_stream_k": [], "convolution": [],
}
# Values with which arguments fit: random ones never would. A name: the same value as that one.
USUAL = {"convolution": {"R": 3, "S": 3, "STRIDE": 1, "PAD": 1, "DIL": 1, "P": "H", "Q": "W"},
         "softmax": {"N": 4096, "C": 4096}}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-O0"]

HARNESS = """
#define _GNU_SOURCE
#include "LAUNCHER.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilec/tilec.h>

static const struct { const char *name; int count; uint64_t maps; } kernels_[] = {KERNELS{"", 0, 0}};

int fake_cuda_param_count(const char *name, uint64_t *maps);
int fake_cuda_param_count(const char *name, uint64_t *maps) {
    for (int i = 0; kernels_[i].name[0]; i++)
        if (strcmp(kernels_[i].name, name) == 0) return *maps = kernels_[i].maps, kernels_[i].count;
    abort();
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *data = malloc(64 << 20);
    *size = fread(data, 1, 64 << 20, file);
    fclose(file);
    return data;
}

static long long next(FILE *cases) {
    long long value;
    if (fscanf(cases, "%lld", &value) != 1) exit(0);
    return value;
}

int main(int argc, char **argv) {
    size_t size;
    char *cubin = read_file(argv[1], &size);
    FILE *cases = fopen(argv[2], "r");
    TilecContext *context;
    TilecArtefact *artefact;
    TilecModule *loaded;
    STEM_module own, none = {0};
    (void)argc;
    if (tilec_context_create(NULL, &context) || tilec_artefact_open(context, cubin, size, &artefact, NULL) ||
        tilec_load(artefact, &loaded, NULL) || STEM_load(&own)) return 1;
    for (;;) {
        long long v[64];
        TilecArg args[64];
        int result = 0, status = 0, entry = (int)next(cases), count = (int)next(cases);
        long long given = next(cases);
        size_t bytes = 0, want = 0;
        const char *name = "";
        TilecLaunch launch = TILEC_INIT(TilecLaunch);
        const STEM_module *module = given == 4 ? &none : &own;
        for (int i = 0; i < count; i++) {
            int kind = (int)next(cases), type = (int)next(cases), rank = (int)next(cases);
            int64_t shape[8], strides[8];
            long long value = next(cases);
            for (int d = 0; d < rank; d++) shape[d] = next(cases);
            for (int d = 0; d < rank; d++) strides[d] = next(cases);
            args[i] = kind == 0   ? tilec_strided_tensor((TilecType)type, (void *)(intptr_t)value, rank, shape, strides)
                      : kind == 1 ? tilec_integer(value)
                                  : tilec_real((double)value / 8);
        }
        for (int i = 0, values = (int)next(cases); i < values; i++) v[i] = next(cases);
        switch (entry) {
WORKSPACES
        }
        if (given == 4) {   // it was not loaded
            int first = result;
            setenv("FAKE_CUDA_LOG", "own.log", 1);
            switch (entry) {
LAUNCHES
            }
            setenv("FAKE_CUDA_LOG", "/dev/null", 1);
            if (strcmp(STEM_error(first), "the module is not loaded") || result != first) printf("case %s: not loaded %d %d\\n", name, first, result);
            continue;
        }
        status = tilec_workspace_size(loaded, tilec_artefact_find(artefact, name), args, (size_t)count, &want, NULL);
        if (!result != !status || (!status && bytes != want)) printf("case %s: workspace %d %zu, tilec %d %zu\\n", name, result, bytes, status, want);
        launch.workspace = given ? (void *)(intptr_t)(1LL << 50) : NULL;
        if (given == 3) launch.workspace = (void *)(intptr_t)((1LL << 50) + 16);   // not aligned
        launch.workspace_size = (size_t)(given == 1 || given == 3 ? (long long)want : 0);
        launch.zeroed = NULL;
        if (!launch.workspace && want) launch.workspace = (void *)(intptr_t)(1LL << 50), launch.workspace_size = want;
        setenv("FAKE_CUDA_LOG", "own.log", 1);
        switch (entry) {
LAUNCHES
        }
        setenv("FAKE_CUDA_LOG", "tilec.log", 1);
        status = tilec_launch(loaded, tilec_artefact_find(artefact, name), args, (size_t)count, &launch, NULL);
        setenv("FAKE_CUDA_LOG", "/dev/null", 1);
        if (!result != !status) printf("case %s: launch %d (%s), tilec %d\\n", name, result, STEM_error(result), status);
        FILE *log = fopen("own.log", "a");
        fprintf(log, "== %s %d\\n", name, !result);
        fclose(log);
        log = fopen("tilec.log", "a");
        fprintf(log, "== %s %d\\n", name, !status);
        fclose(log);
    }
}
"""

TYPES = {name: number for number, name in enumerate(["", "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64",
                                                     "e4m3", "e5m2"])}

parser = argparse.ArgumentParser()
parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("source", type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--shapes", type=int, default=10000)
parser.add_argument("--seed", default=os.environ.get("TILEC_TEST_SEED", "1"))
parser.add_argument("--only", default="")
options = parser.parse_args()


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))[:500]}\nexit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def evaluate(expression, names):
    text = re.sub(r"(?<![\w.])(\d+)\b", r"\1", expression.replace("/", "//").replace("&&", " and ").replace("||", " or "))
    return int(eval(text, {"ceildiv": lambda a, b: -(-a // b), "min": min, "max": max, "__builtins__": {}}, names))


def file_of(example):
    own = options.source / "tests/launcher" / f"{example}.tile"
    return own if own.exists() else options.source / "examples" / f"{example}.tile"


def number(draw):
    kind = draw.randrange(8)
    if kind < 4:
        return draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 256, 512)) * draw.randint(1, 40)
    return draw.choice((0, 1, 2, 3, 7, 17, 128, 4096, draw.randint(1, 10000), draw.randint(1, 300), 64 * draw.randint(1, 300)))


def a_case(draw, entry, signature, usual):
    """(tensor, scalar fields; values of the typed function) of a random call; None: the shapes make no sense."""
    variant = entry["variants"][0]
    values, names, fields = {}, {}, []
    for kind, name in signature:
        if kind == "int64_t":
            values[name] = number(draw)
        elif kind != "pointer":
            values[name] = draw.randint(-3, 40) if kind not in ("int", "uint8_t", "uint16_t", "uint32_t", "uint64_t") else draw.randint(0, 1)
    known = [(name, value) for name, value in usual.items() if f"{name}_" in values]
    for name, value in known if draw.random() < 0.8 else ():
        values[f"{name}_"] = value if isinstance(value, int) else values[f"{value}_"]
    names = {name.rstrip("_"): value for name, value in values.items()}
    for index, p in enumerate(variant["params"]):
        if "shape" not in p:
            real = p["type"][0] in "fb" and p["type"] != "bool"
            fields.append([2 if real else 1, 0, 0, values[p["name"] + "_"]])
            continue
        address = (1 << 40) * (index + 1) + draw.choice((0, 0, 0, 0, 16, 8, 256, 2))
        values[p["name"] + "_"] = address
        shape = [names.get(f"{p['name']}_dim{d}", None) for d in range(len(p["shape"]))]
        shape = [evaluate(text, names) if known is None else known for known, text in zip(shape, p["shape"])]
        dense, strides = 1, []
        for extent in reversed(shape):
            strides.insert(0, dense)
            dense *= extent
        for d in range(len(shape)):
            if "strides" in p:
                known = names.get(f"{p['name']}_stride{d}", None)
                strides[d] = evaluate(p["strides"][d], names) if known is None else known
        fields.append([0, TYPES[p["type"]], len(shape), address, *shape, *strides])
    return fields, [values[name] for _, name in signature]


def signature_of(header, name):
    found = re.search(rf"int {name}_launch\(([^)]*)\);", header)
    params = [param.strip() for param in found[1].split(",")][4:]
    return [("pointer" if "*" in param else param.split()[0], re.split(r"[ *]", param)[-1]) for param in params]


def c_value(kind, index):
    return {"pointer": f"(void *)(intptr_t)v[{index}]", "float": f"(float)((double)v[{index}] / 8)", "double": f"(double)v[{index}] / 8"}.get(
        kind, f"({kind})v[{index}]")


def kernel_table(manifest):
    rows, arguments = [], None
    for entry in manifest["entries"]:
        for v in entry["variants"]:
            if isinstance(v, list):   # the kernel before, in another cluster
                rows.append(rows[-1])
                continue
            arguments = v if "params" in v else arguments   # else those of the variant before
            if "symbol" in v:
                maps = v.get("maps", [])
                places = sum(1 << (m.get if isinstance(m, dict) else {}.get)("at", len(arguments["params"]) + i) for i, m in enumerate(maps))
                rows.append(f'{{"{v["symbol"]}", {len(arguments["params"]) + len(maps) + len(arguments.get("dims", [])) + (len(v.get("cluster", [])) == 2)}, {places}ull}}, ')
    return "".join(rows)


def check(example, defines, folder):
    tilec, env = options.build / "tilec", {**os.environ, "TILEC_CACHE": "off"}
    words = [word for define in defines for word in ("-D", define)]
    source = file_of(example)
    for kind in (["--emit=launcher", "-o", folder / "it.c"], ["-o", folder / "it.cubin"], ["--emit=manifest", "-o", folder / "it.json"]):
        run(tilec, "build", source, *words, "--record=none", *kind, env=env)
    run("g++", "-x", "c++", "-std=c++11", *WARNINGS, "-c", folder / "it.c", "-o", folder / "cxx.o")
    run("gcc", "-std=c99", *WARNINGS, "-c", folder / "it.c", "-o", folder / "it.o")
    manifest, header = json.loads((folder / "it.json").read_text()), (folder / "it.h").read_text()
    entries = [e for e in manifest["entries"] if re.search(rf"int {e['name']}_launch\(", header)]
    signatures = [signature_of(header, e["name"]) for e in entries]
    calls = {"WORKSPACES": "", "LAUNCHES": ""}
    for i, (entry, signature) in enumerate(zip(entries, signatures)):
        values = "".join(f", {c_value(kind, k)}" for k, (kind, _) in enumerate(signature))
        calls["WORKSPACES"] += f'        case {i}: name = "{entry["name"]}"; result = {entry["name"]}_workspace(module, &bytes{values}); break;\n'
        calls["LAUNCHES"] += f"        case {i}: result = {entry['name']}_launch(module, NULL, launch.workspace, launch.workspace_size{values}); break;\n"
    text = HARNESS.replace("KERNELS", kernel_table(manifest)).replace("LAUNCHER", "it").replace("STEM", "it")
    for name, lines in calls.items():
        text = text.replace(name, lines)
    (folder / "harness.c").write_text(text)
    fake = options.build / "tests/fake_cuda"
    run("gcc", "-std=gnu11", "-rdynamic", "-I", folder, "-I", options.source / "include", folder / "harness.c", folder / "it.o", "-o", folder / "harness",
        f"-L{options.build}", "-ltilec-launch", fake / "libcuda.so.1", "-lm")
    draw, lines = random.Random(f"{options.seed} {example}"), []
    for _ in range(max(1, options.shapes // len(chosen))):
        i = draw.randrange(len(entries))
        fields, values = a_case(draw, entries[i], signatures[i], USUAL.get(example, {}))
        lines.append(f"{i} {len(fields)} {draw.choice((0, 1, 1, 1, 2, 3, 4))} " + " ".join(" ".join(map(str, f)) for f in fields)
                     + f" {len(values)} " + " ".join(map(str, values)))
    (folder / "cases").write_text("\n".join(lines) + "\n")
    env |= {"LD_LIBRARY_PATH": f"{options.build}:{fake}", "FAKE_CUDA_PARAMS": "1", "FAKE_CUDA_LOG": "/dev/null"}
    said = run(folder / "harness", folder / "it.cubin", folder / "cases", env=env, cwd=folder)
    own, other = ((folder / name).read_text().splitlines() for name in ("own.log", "tilec.log"))
    maps = [{line for line in log if re.match("map|im2col", line)} for log in (own, other)]
    own, other = ([line for line in log if not re.match("map|im2col", line)] for log in (own, other))
    done = sum(line.startswith("== ") and line.endswith(" 1") for line in own)
    if said or own != other or maps[0] != maps[1]:
        first = next((f"{a}\n{b}" for a, b in zip(own, other) if a != b), f"maps {maps[0] ^ maps[1]}")
        sys.exit(f"{example}: {said[:1000]}\n{first}")
    if done * 20 < len(lines):
        sys.exit(f"{example}: only {done} of {len(lines)} calls launch")
    print(f"{example:16} {len(lines)} calls, {done} launch {sum(line.startswith('launch') for line in own)} kernels, {len(maps[0])} maps", flush=True)


chosen = [name for name in EXAMPLES if re.search(options.only, name)]
for name in chosen:
    with tempfile.TemporaryDirectory() as place:
        check(name, EXAMPLES[name], pathlib.Path(place))
