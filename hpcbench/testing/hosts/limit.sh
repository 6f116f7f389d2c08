#!/usr/bin/env bash
# limit.sh COUNT RATE BURST QUEUE - limit every link of up.sh in both directions by a token bucket, from now on; RATE 0 for
# no limit. The filter on eth0 limits what a host sends, the one on its port of the switch what it receives. A packet that
# segmentation offload made larger than the burst is cut by the filter, so offloads may stay on.
set -euo pipefail
count=$1 rate=$2 burst=$3 queue=$4
if [ "$rate" = 0 ]; then
    # Without a filter there is nothing to delete, which replacing it first hides.
    limit() { "$@" tc qdisc replace "${link[@]}" pfifo && "$@" tc qdisc del "${link[@]}"; }
else
    limit() { "$@" tc qdisc replace "${link[@]}" tbf rate "$rate" burst "$burst" limit "$queue"; }
fi
for k in $(seq "$count"); do
    link=(dev eth0 root)
    limit nsenter --net="/dev/shm/$k/net"
    link=(dev "port$k" root)
    limit
done
