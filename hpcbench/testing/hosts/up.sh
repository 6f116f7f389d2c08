#!/usr/bin/env bash
# up.sh HERE COUNT DELAY_US COMPILER - the hosts of hpcbench.testing.hosts, which starts this as process 1 of namespaces
# of its own:
#
#   host1 [eth0] ==veth== [port1] wire.c [port2] ==veth== [eth0] host2
#
# No process holds a host: its namespaces are open files of process 1, found through links in $state/k. (As mounted files
# they would be easier to name, but Linux 6.18 often refuses to mount a mount namespace.) Process 1, which becomes the wire,
# ends when its standard input does. Then the kernel ends every process in here, and nothing is left that could be cleaned up.
set -euo pipefail
here=$1 count=$2 delay=$3 compiler=$4
state=/dev/shm # hosts have another one; for them this is /proc/1/root/dev/shm

mount -t tmpfs -o mode=700 state "$state"
install -m 755 "$here/on.sh" "$state/on"
{
    echo "127.0.0.1 localhost"
    for k in $(seq "$count"); do echo "198.18.0.$k host$k"; done
} >"$state/hosts"
"$compiler" -O2 -Wall -o "$state/wire" "$here/wire.c"

ports=()
for k in $(seq "$count"); do
    coproc host { exec unshare --net --uts --ipc --mount -- bash "$here/host.sh" "$k" "$state"; }
    pid=$host_PID
    read -r _ <&"${host[0]}"
    mkdir "$state/$k"
    for kind in net uts ipc mnt; do
        exec {file}<"/proc/$pid/ns/$kind"
        ln -s "/proc/1/fd/$file" "$state/$k/$kind"
    done
    # The address holds the host's number: wire.c finds the port by it.
    ip link add "port$k" type veth peer name eth0 address "$(printf '02:68:62:00:00:%02x' "$k")" netns "$pid"
    ip link set "port$k" up
    echo >&"${host[1]}"
    wait "$pid"
    ports+=("port$k")
done

# The kernel may take a second to call a link up that is, and MPI libraries skip one that is not.
is_up() { nsenter --net="$state/$1/net" ip link show eth0 | grep "state UP" >/dev/null; }
for k in $(seq "$count"); do
    for _ in $(seq 500); do
        if is_up "$k"; then continue 2; fi
        sleep 0.01
    done
    echo "the link of host$k does not come up" >&2
    exit 1
done

exec "$state/wire" "$delay" "${ports[@]}"
