#!/usr/bin/env bash
# demo.sh [OPTION of hpcbench submit ...] - what `make demo` does: train with and without compression on this machine, print
# the answer, and write it as a page. Ranks talk over a slow link between virtual hosts where this machine can have them, else
# in shared memory. hpcbench must be on PATH; results go to results/demo below the directory in which this is started.
set -uo pipefail
studies=$(dirname "$0") page=results/demo/report.html

if reason=$(hpcbench-virtual-hosts --can); then
  site=virtual-hosts
else
  site=local
  echo "The ranks talk in shared memory, where there is little to gain: $reason"
fi
hpcbench submit "$studies/demo.yaml" --site "$site" --wait "$@"
status=$?
[ "$status" -le 1 ] || exit "$status" # nothing ran
hpcbench report results/demo || status=$?
hpcbench report results/demo --output "$page" || exit
cat << END

The same as a page, with curves and every run: $page
What to type next:
  hpcbench report results/demo --tables all     more of the same runs
  hpcbench submit studies/demo.yaml --set train.steps=200 --set repeats=5 --site $site --wait     longer runs, a surer answer
  hpcbench init my-study                        a study of your own; docs/tutorial.md leads to a cluster
END
exit "$status"
