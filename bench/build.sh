#!/usr/bin/env bash
# Compiles what bench.py measures: each line of bench/artefacts to a cubin named KERNEL-NAME=VALUE-..., together with the
# library that launches them.
#
#     bench/build.sh [--from TAG] [TILEC] [TARGET] [FOLDER] [LINES]
#
#     --from TAG   the baseline: compiler, sources and bench/artefacts of that tag (`baseline`: the one in bench/BASELINE),
#                  into bench/out/TAG; TILEC is not given then
#     TILEC        a release build. Default: build/release/tilec
#     TARGET       default: sm_90a
#     FOLDER       default: bench/out
#     LINES        only lines of bench/artefacts that match (grep -E)
#
# ARTEFACTS=FILE: another list than bench/artefacts.
#
# bench.py takes the fastest artefact of each kernel at each shape, next to the program as it stands.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --from ]; then
    tag=${2:?--from needs a tag}
    [ "$tag" != baseline ] || read -r tag _ < "$here/BASELINE"
    shift 2
    tree=$("$here/tree.sh" "$tag")
    out=${2:-$here/out/$tag}
    "$tree/bench/build.sh" "$tree/build/release/tilec" "${1:-sm_90a}" "$out" "${@:3}"
    cp "$tree/bench/cubins.py" "$out"   # knows the launcher of its own version
    exit
fi
tilec=$(realpath "${1:-$here/../build/release/tilec}")
target=${2:-sm_90a}
out=${3:-$here/out}
lines=${4:-.}
jobs=${JOBS:-$(nproc)}
mkdir -p "$out"
rm -f "$out"/*.cubin
cp -L "$(dirname "$tilec")/libtilec.so" "$out/libtilec-launch.so"   # the name that older trees gave its launcher
out=$(realpath "$out")

# Every combination of the alternatives: one line KERNEL FILE NAME=VALUE... each.
expand() {
    awk '!/^ *(#|$)/ {
        count = 1; texts[1] = $1 " " $2
        for (i = 3; i <= NF; i++) {
            split($i, pair, "="); n = split(pair[2], values, "|"); more = 0
            for (j = 1; j <= count; j++) for (k = 1; k <= n; k++) next_texts[++more] = texts[j] " " pair[1] "=" values[k]
            count = more; for (j = 1; j <= count; j++) texts[j] = next_texts[j]
        }
        for (j = 1; j <= count; j++) print texts[j]
    }' "${ARTEFACTS:-$here/artefacts}" | grep -E -- "$lines" | sort -u
}

one() {
    local kernel=$1 file=$2 name=$1 flags=() define log
    shift 2
    for define in "$@"; do
        name=$name-$define
        case $define in
            for=*) define=${define#for=} && flags+=(--for "${define//:/=}") ;;   # for=M:128,N:64,K:64
            *) flags+=(-D "$define") ;;
        esac
    done
    if log=$("$tilec" build "$here/../$file" --only="$kernel" --target="$target" --no-lines "${flags[@]}" -o "$out/$name.cubin" 2>&1); then
        echo "$name"
    else
        echo "left out: $name: $(grep -m1 error <<< "$log")"
    fi
}
export -f one
export here tilec target out
expand | xargs -P "$jobs" -I{} bash -c 'one {}'
