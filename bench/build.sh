#!/bin/sh
# Compiles what bench.py measures into bench/out: a cubin and its manifest for each setting, named KERNEL-NAME=VALUE-...
#
#     bench/build.sh [TILEC] [TARGET]          TILEC: a release build (default build/release/tilec), TARGET: sm_90a
#
# bench.py takes the fastest setting of each kernel at each shape, as it does for its peers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tilec=${1:-$here/../build/release/tilec}
target=${2:-sm_90a}
out=$here/out
mkdir -p "$out"
rm -f "$out"/*.cubin "$out"/*.json

# compile KERNEL [NAME=VALUE ...]
compile() {
    kernel=$1
    name=$1
    shift
    flags=
    for define in "$@"; do
        name=$name-$define
        flags="$flags -D $define"
    done
    # shellcheck disable=SC2086
    "$tilec" build "$here/../examples/$kernel.tile" --target="$target" $flags -o "$out/$name.cubin"
    # shellcheck disable=SC2086
    "$tilec" build "$here/../examples/$kernel.tile" --target="$target" $flags --emit=manifest -o "$out/$name.json"
    echo "$name"
}

# As they stand, and settings to choose from.
for kernel in vector_add transpose gemm; do compile $kernel; done
for block in 1024 2048; do compile vector_add BLOCK=$block; done
for tile in 32 64; do compile transpose T=$tile; done
for columns in 1024 4096 8192; do
    compile softmax N=$columns
    for rows in 1 4; do
        # as much as 128 threads hold in registers
        if [ $((rows * columns)) -le 8192 ]; then compile rmsnorm N=$columns ROWS=$rows; fi
    done
done
for tile in "128 200 4" "128 192 4" "128 208 4" "128 176 4" "128 128 6" "64 128 6" "64 64 8" "128 256 3"; do
    set -- $tile
    compile gemm BM="$1" BN="$2" STAGES="$3"
done
