#!/usr/bin/env bash
# limit.sh COUNT RATE BURST QUEUE - let the packets of each host of up.sh wait in the host, in a token bucket on eth0, from now
# on; RATE 0 for none. The bucket does not shape the link, which wire.c does: it makes TCP see a queue, so that a connection
# keeps about a millisecond of data in it, and not all that its window allows.
set -euo pipefail
count=$1 rate=$2 burst=$3 queue=$4
for k in $(seq "$count"); do
    at=(nsenter --net="/dev/shm/$k/net" tc qdisc)
    if [ "$rate" = 0 ]; then
        # Without a bucket there is nothing to delete, which replacing it first hides.
        "${at[@]}" replace dev eth0 root pfifo
        "${at[@]}" del dev eth0 root
    else
        "${at[@]}" replace dev eth0 root tbf rate "$rate" burst "$burst" limit "$queue"
    fi
done
