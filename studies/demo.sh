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
hpcbench report results/demo --output "$page" || status=$?
cat << END

The same as a page, with figures and every run: $PWD/$page
What to type next:
  . .venv/bin/activate                                    so that the shell finds hpcbench
  hpcbench report results/demo --tables all               more of these runs
  hpcbench submit studies/demo.yaml --site $site --set train.steps=100 --set repeats=5 --wait    a surer answer
docs/tutorial/slurm.md goes on to a cluster, docs/how-to/write-a-study.md to a study of yours.
END
exit "$status"
