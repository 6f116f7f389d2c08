#!/usr/bin/env bash
# on.sh [-OPTION...] HOST COMMAND... - run a command on a host of up.sh, called the way that ssh is called, so that it can
# stand in for ssh in an MPI launcher. Like ssh, it joins the command's words with blanks and gives them to a shell; unlike
# ssh, the command keeps the caller's environment and directory.
set -euo pipefail
while [[ ${1-} == -* ]]; do shift; done
host=$1
shift
here=/proc/1/root/dev/shm/${host#host}
[ -e "$here/net" ] || {
    echo "no host $host" >&2
    exit 255
}
# shellcheck disable=SC2016
exec nsenter --net="$here/net" --uts="$here/uts" --ipc="$here/ipc" --mount="$here/mnt" \
    bash -c 'cd -- "$0" && eval "$1"' "$PWD" "$*"
