#!/bin/sh
# Questions per second of `tilec layout --batch` on one core, over the golden questions.
# usage: bench/layout_batch.sh path/to/tilec [repetitions]
set -eu
tilec=${1:?usage: bench/layout_batch.sh path/to/tilec [repetitions]}
repetitions=${2:-300}
golden=$(dirname "$0")/../tests/golden
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

measure() {   # name, file of questions
    for i in $(seq "$repetitions"); do cat "$2"; done > "$scratch/questions"
    lines=$(wc -l < "$scratch/questions")
    start=$(date +%s.%N)
    "$tilec" layout --batch < "$scratch/questions" > "$scratch/answers"
    end=$(date +%s.%N)
    test "$(wc -l < "$scratch/results")" = "$lines"
    awk -v name="$1" -v lines="$lines" -v start="$start" -v end="$end" -v need=200000 'BEGIN {
        rate = lines / (end - start)
        printf "%-22s %10.0f questions/s  (%.1f x the promised %d)\n", name, rate, rate / need, need }'
}

grep -v -e '^#' -e '^eval' -e '^swizzle' "$golden/cute.tsv" | cut -f1-3 > "$scratch/simple"
grep '^{' "$golden/linear.jsonl" | awk 'length($0) < 300' > "$scratch/json"
grep '^{' "$golden/linear.jsonl" > "$scratch/all"
measure "tab-separated" "$scratch/simple"
measure "JSON, short" "$scratch/json"
measure "JSON, all" "$scratch/all"
