#!/usr/bin/env bash
# The examples on a GPU. In two halves, since the machine with the GPU may have nothing but a driver:
#
#   tests/gpu/run.sh prepare BUILD FOLDER    with LLVM and ptxas: compiles every example for every test, copies the small
#                                            tool and the sources into FOLDER, which can then travel
#   tests/gpu/run.sh run FOLDER [OPTION...]  with a GPU: runs every test against its reference; options go to `tilec test`
#   tests/gpu/run.sh sanitize FOLDER [OPTION...]  with compute-sanitizer: see sanitize.py
#
# BUILD is a build folder with the targets tilec and tilec-gpu. TARGET (default sm_90a) is the architecture.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${TARGET:-sm_90a}

prepare() {
    local build=$1 folder=$2 status=0
    mkdir -p "$folder/cubin" "$folder/src" || return 3
    cp "$build/tilec-gpu" "$folder/" && cp "$here"/tests/gpu/{run.sh,large.py,sanitize.py} "$folder/" || return 3
    for lib in "$here"/tests/programs/*/; do cp -r "$lib" "$folder/src/"; done   # what programs import
    shopt -s nullglob
    python3 "$here/tests/random/random_shapes.py" write "$folder/src" "$here/examples" > /dev/null || return 3
    python3 "$here/tests/gpu/random_gemm.py" "$folder/src" || return 3
    cp "$here"/examples/*.tile "$here"/tests/programs/*.tile "$folder/src/"
    [ "$target" != sm_90a ] || cp "$here"/tests/gpu/*.tile "$folder/src/"
    for file in "$folder"/src/*.tile; do
        if ! "$build/tilec" test --device=gpu --target="$target" --compile-only="$folder/cubin" "$file"; then
            echo "not prepared: $file"
            status=1
        fi
    done
    return $status
}

run() {
    local folder=$1 status=0 passed=0 failed=0
    shift
    "$folder/tilec-gpu" doctor
    for file in "$folder"/src/*.tile; do
        echo "== $(basename "$file")"
        local log
        log=$("$folder/tilec-gpu" test --device=gpu --compiled="$folder/cubin" "$@" "$file" 2>&1) || status=1
        echo "$log"
        passed=$((passed + $(grep -c '^ok ' <<< "$log")))
        failed=$((failed + $(grep -c -e '^FAIL ' -e 'error\[' <<< "$log")))
    done
    echo "== all: $passed passed, $failed failed"
    return $status
}

case ${1-} in
prepare) prepare "$2" "$3" ;;
run) shift && run "$@" ;;
sanitize) shift && "$(dirname "$0")/sanitize.py" "$@" ;;
*)
    sed -n '2,12p' "$0"
    exit 2
    ;;
esac
