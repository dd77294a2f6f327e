# completion.sh SCRIPT WORD...: what the completion of bash in SCRIPT makes of the last word.
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_tilec
echo "${COMPREPLY[@]}"
