#!/bin/bash
#SBATCH --job-name=neox-hybrid-j0001-r1
#SBATCH --nodes=12
#SBATCH --ntasks=48
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --account=x
#SBATCH --chdir=/scratch/me/results/neox-hybrid/001
#SBATCH --output=/scratch/me/results/neox-hybrid/001/jobs/j0001-r1/out.log
#SBATCH --open-mode=append
#SBATCH --no-requeue
# Written by hpcbench 0.1.0: study neox-hybrid, job j0001-r1, site offer.
set -u
unset -v MPIR_CVAR_COMPRESSION_ALGORITHM MPIR_CVAR_ENABLE_COMPRESSION MPIR_CVAR_ZFP_PATH # no run gets these from the shell that handed this in

ROOT=/scratch/me/results/neox-hybrid/001
JOB=j0001-r1
cd -- "$ROOT" || exit 1

for name in $(compgen -e); do
  case $name in
    SLURM_CONF | SLURM_CLUSTERS | LSF_ENVDIR | LSF_SERVERDIR | LSF_BINDIR | LSF_LIBDIR) ;;
    SLURM_CPU_BIND* | SLURM_MEM_BIND* | SLURM_GPU_BIND* | SLURM_DISTRIBUTION | SLURM_STEP* | SLURM_PROCID | SLURM_LOCALID | SLURM_LAUNCH_* | SLURM_SRUN_* | SLURM_PMI* | SRUN_* | SBATCH_* | LSB_* | LS_* | JSM_* | FLUX_* | PBS_* | PMI_* | PMIX_* | OMPI_* | PRTE_* | HYDRA_* | HYDI_* | MPIEXEC_* | MPI_LOCALNRANKS | MPI_LOCALRANKID | CRAY_PMI* | PALS_*) unset -v "$name" ;;
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
  "$@" python3 -u -m hpcbench.train "runs/$RUN/run.json" > "runs/$RUN/log.txt" 2> "runs/$RUN/err.txt" < /dev/null &
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

export OMP_NUM_THREADS=8

LAUNCH=(mpirun -np 48 --map-by ppr:4:node:PE=8 --bind-to core --mca btl self)
run r1-nodes12-baseline "${LAUNCH[@]}"
run r1-nodes12-zhybrid-16-8 "${LAUNCH[@]}"
run r1-nodes12-library-zfp16 env MPIR_CVAR_ENABLE_COMPRESSION=1 'MPIR_CVAR_ZFP_PATH=/it'"'"'s $HOME/`id` \' "${LAUNCH[@]}" -x MPIR_CVAR_ENABLE_COMPRESSION -x MPIR_CVAR_ZFP_PATH
run r1-nodes12-library-mpc env MPIR_CVAR_COMPRESSION_ALGORITHM=mpc "${LAUNCH[@]}" -x MPIR_CVAR_COMPRESSION_ALGORITHM
exit "$FAILED"
