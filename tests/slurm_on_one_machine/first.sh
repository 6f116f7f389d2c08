#!/usr/bin/env bash
# first.sh DIRECTORY - process 1 of a cluster of slurm_on_one_machine, which has it start and end daemons by a line of
# standard input each, and reads a line for each: the exit status. When standard input ends, which the kernel sees to
# whatever becomes of Python, it ends everything that runs in its process namespace and removes the directory.
set -uo pipefail
directory=$1
[ $$ = 1 ] || exit 2 # or the last lines would end every process of this machine
declare -A started=()

start() { # NAME COMMAND, a daemon that stays in the foreground
    eval "exec $2" </dev/null >>"$directory/log/$1.out" 2>&1 &
    started[$1]=$!
}
alive() { # NAME
    kill -0 "${started[$1]}"
}
stop() { # NAME
    kill -TERM "${started[$1]}" && { wait "${started[$1]}" || true; }
}
crash() { # NAME of a node: its process 1 is the child of unshare, and reaped only after all else there is gone
    local pid=${started[$1]}
    kill -KILL "$(<"/proc/$pid/task/$pid/children")" && { wait "$pid" || true; }
}

hostname ctl && mount --bind "$directory/etc/hosts" /etc/hosts
echo $?
while read -r verb name command; do
    "$verb" "$name" "$command"
    echo $?
done 2>>"$directory/log/first.out"
exec 2>/dev/null # bash tells whom it buries
kill -KILL -1
wait
rm -rf -- "$directory"
