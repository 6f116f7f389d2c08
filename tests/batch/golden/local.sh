#!/bin/bash
# Written by hpcbench 0.1.0: study demo, job j0001-r1, site local.
set -u

ROOT='/home/me/it'"'"'s $HOME/results/demo/001'
JOB=j0001-r1
cd -- "$ROOT" || exit 1

for name in $(compgen -e); do
  case $name in
    SLURM_CONF | SLURM_CLUSTERS | LSF_ENVDIR | LSF_SERVERDIR | LSF_BINDIR | LSF_LIBDIR) ;;
    SLURM* | SRUN_* | SBATCH_* | LSB_* | LSF_* | LS_* | JSM_* | FLUX_* | PBS_* | PMI_* | PMIX_* | OMPI_* | PRTE_* | HYDRA_* | HYDI_* | MPIEXEC_* | MPI_LOCALNRANKS | MPI_LOCALRANKID | I_MPI_* | CRAY_PMI* | PALS_*) unset -v "$name" ;;
  esac
done

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# mark FILE TEXT: the file is there whole, or not at all
mark() { printf '%s\n' "$2" > "$1.tmp" && mv -f -- "$1.tmp" "$1"; }

# ended STATUS: the current run is over
ended() {
  mark "runs/$RUN/status.json" "{\"state\": \"ended\", \"exit\": $1, \"start\": \"$RUN_START\", \"end\": \"$(now)\", \"host\": \"$HOST\", \"job\": \"$JOB\"}"
  RUN=
}

# run ID LAUNCHER...: launch a run and wait for it; a failure does not stop the next one
run() {
  RUN=$1
  shift
  RUN_START=$(now)
  mark "runs/$RUN/status.json" "{\"state\": \"running\", \"start\": \"$RUN_START\", \"host\": \"$HOST\", \"job\": \"$JOB\"}"
  "$@" /opt/venv/bin/python -u -m hpcbench.train "runs/$RUN/run.json" > "runs/$RUN/log.txt" 2> "runs/$RUN/err.txt" < /dev/null &
  CHILD=$!
  wait "$CHILD"
  local status=$?
  CHILD=
  ended "$status"
  [ "$status" -eq 0 ] || FAILED=1
}

# stop STATUS: a signal came; end the launcher and all it started, then this script
stop() {
  trap '' TERM INT HUP
  if [ -n "$CHILD" ]; then
    kill -TERM -- "-$CHILD"
    for _ in {1..20}; do
      kill -0 -- "-$CHILD" || break
      sleep 0.25
    done
    kill -KILL -- "-$CHILD"
  fi 2> /dev/null
  [ -z "$RUN" ] || ended "$1"
  exit "$1"
}

finish() {
  mark "jobs/$JOB/status.json" "{\"exit\": $1, \"start\": \"$START\", \"end\": \"$(now)\", \"host\": \"$HOST\"}"
}

CHILD= RUN= FAILED=0
START=$(now)
HOST=$(uname -n)
case $HOST in *[!A-Za-z0-9._-]*) HOST=unknown ;; esac
set -m # the launcher gets a process group of its own, so that a signal reaches all of it
trap 'finish "$?"' EXIT
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP

export OMP_NUM_THREADS=1

LAUNCH=(/opt/venv/bin/mpiexec -n 8 -bind-to none)
run r1-baseline "${LAUNCH[@]}"
run r1-naive-zfp8 "${LAUNCH[@]}"
run r1-mzhybrid "${LAUNCH[@]}"
run r1-zhybrid-16-8 "${LAUNCH[@]}"
exit "$FAILED"
