#!/usr/bin/env bash
# host.sh K STATE - make the namespaces that this is started in a host of up.sh.
#
# A host has a network (one interface, eth0, with the address 198.18.0.K), a name, /etc/hosts, /sys, /dev/shm and System V
# IPC of its own, so MPI takes it for a machine; the rest of the file system is common. It says when it may be given eth0,
# and waits to be told that it has it.
set -euo pipefail
k=$1 state=$2

hostname "host$k"
mount --bind "$state/hosts" /etc/hosts
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 shm /dev/shm
echo up
read -r _

cd /proc/sys/net
echo reno >ipv4/tcp_congestion_control # every kernel has it
echo 0 >ipv4/tcp_slow_start_after_idle
if [ -e ipv6 ]; then echo 1 >ipv6/conf/all/disable_ipv6; fi
ip link set lo up
ip addr add "198.18.0.$k/24" dev eth0
ip link set eth0 up
