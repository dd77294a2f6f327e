#!/usr/bin/env bash
# Builds the tree of a tag or commit in a folder of its own under build/from/ and prints that folder: a baseline for measurements and comparisons.
#
#     bench/tree.sh [TAG]      TAG: default: the one in bench/BASELINE
#
# The tree is a git worktree in build/from/TAG with a release build in its build/release. A clone without tags takes the
# commit that bench/BASELINE gives for the tag.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
read -r tag commit < "$here/bench/BASELINE"
want=${1:-$tag}
[ "$want" = "$tag" ] || commit=$want
tree=$here/build/from/${want//\//-}
if [ ! -d "$tree" ]; then
    git -C "$here" rev-parse -q --verify "$commit^{commit}" >/dev/null || {
        echo "bench/tree.sh: no commit $commit ($want) in this clone; fetch the whole history" >&2
        exit 1
    }
    git -C "$here" worktree prune
    git -C "$here" worktree add --quiet --detach "$tree" "$commit" >&2
fi
if [ ! -x "$tree/build/release/tilec" ]; then
    (cd "$tree" && ./dev build release) >&2
fi
echo "$tree"
