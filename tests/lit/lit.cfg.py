# Text tests of the compiler. A test is a file whose RUN lines run `tilec` and check what it says with FileCheck:
#
#     // RUN: tilec opt --passes=simplify %s | FileCheck %s
#     // CHECK: let n = 4;
#
# A test of several files keeps them in one, split by `split-file %s %t`. What must fail is run by `not`, or by `%exits N`
# where the exit code matters. No test needs a GPU; those that need ptxas say `REQUIRES: ptxas`.
import os
import shutil

import lit.formats

config.name = "tilec"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".tile", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.tilec_binary_dir, "tests", "lit", "out")

config.environment["PATH"] = os.pathsep.join(
    [config.tilec_binary_dir, config.llvm_tools_dir, os.environ.get("PATH", "")]
)
for name in ["ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "CUDA_PATH", "TILEC_FAULT", "TILEC_FAULT_LOG"]:
    if name in os.environ:
        config.environment[name] = os.environ[name]
# Tests neither see nor fill the user's cache; those of the compile cache have a folder of their own.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
config.environment["TILEC_CACHE"] = "off"
config.environment["XDG_STATE_HOME"] = os.path.join(config.test_exec_root, "state")   # nor the host's tuning record
config.environment["NO_COLOR"] = "1"
config.environment["TILEC_REPRO_DIR"] = "none"   # tests of failures leave no reproducers, unless they ask for them
# UTF-8, wherever the tests run.
config.environment["LC_ALL"] = "C.UTF-8"

config.substitutions.append(("%examples", os.path.join(config.tilec_source_dir, "examples")))
config.substitutions.append(("%programs", os.path.join(config.tilec_source_dir, "tests", "programs")))
# Puts a CUDA driver without a device in place: see fake_cuda/libcuda.c.
config.substitutions.append(
    ("%with-device", "env LD_LIBRARY_PATH=" + os.path.join(config.tilec_binary_dir, "tests", "fake_cuda"))
)
# Shells whose completion is tried where they are.
for shell in ("zsh", "fish"):
    if shutil.which(shell):
        config.available_features.add(shell)

# `%exits N command...`: runs the command and demands exit code N.
config.substitutions.append(("%exits", "bash " + os.path.join(config.tilec_source_dir, "tests", "lit", "exits.sh")))

ptxas = shutil.which("ptxas", path=os.pathsep.join([config.environment["PATH"], "/usr/local/cuda/bin"]))
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
config.substitutions.append(("%cc", config.c_compiler))
config.substitutions.append(("%cxx", config.cxx_compiler))
config.substitutions.append(("%bin", config.tilec_binary_dir))
if config.sanitized:
    config.available_features.add("sanitized")   # slower, and limits on memory do not work
