#!/usr/bin/env bash
# node.sh NAME - process 1 of a node: a host with a name, processes, /dev/shm and System V IPC of its own, so MPI takes it
# for a machine. Network and files are common. It adopts what jobs leave behind, and ends, with all of that, with slurmd.
set -euo pipefail
hostname "$1"
mount -t tmpfs -o mode=1777 shm /dev/shm
slurmd -D
