#!/usr/bin/env bash
# exits.sh N COMMAND...: succeeds when the command exits with code N.
want=$1
shift
"$@"
got=$?
[ "$got" -eq "$want" ] && exit 0
echo "exit code $got, expected $want: $*" >&2
exit 1
