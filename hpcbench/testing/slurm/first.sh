#!/usr/bin/env bash
# first.sh DIRECTORY - process 1 of a cluster of hpcbench.testing.slurm, which tells it by lines of standard input what to
# start and what to end, and waits for a line for each. When standard input ends, which the kernel sees to whatever
# becomes of Python, it ends everything that runs in its process namespace and removes the directory.
set -uo pipefail
directory=$1
[ $$ = 1 ] || exit 2 # or the last lines would end every process of this machine
declare -A started=()

hostname ctl
mount --bind "$directory/etc/hosts" /etc/hosts
echo ready
while read -r verb name command; do
    case $verb in
    start)
        eval "exec $command" </dev/null >>"$directory/log/$name.out" 2>&1 &
        started[$name]=$!
        ;;
    stop) kill -TERM "${started[$name]}" ;;
    crash) # a node: its process 1 is the child of unshare, and reaped only after all else on the node is gone
        pid=${started[$name]}
        # shellcheck disable=SC2046
        kill -KILL $(<"/proc/$pid/task/$pid/children")
        ;;
    esac
    case $verb in stop | crash) wait "${started[$name]}" ;; esac
    echo "$verb $name"
done 2>>"$directory/log/first.out"
exec 2>/dev/null # bash tells whom it buries
kill -KILL -1
wait
rm -rf -- "$directory"
