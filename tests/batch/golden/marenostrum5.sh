#!/bin/bash
#SBATCH --job-name=neox-hybrid-j0001-r1
#SBATCH --nodes=12
#SBATCH --ntasks=48
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=20
#SBATCH --gres=gpu:4
#SBATCH --time=01:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --qos=acc_ehpc
#SBATCH --account=my-bank
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --chdir=/scratch/me/results/neox-hybrid/001
#SBATCH --output=/scratch/me/results/neox-hybrid/001/jobs/j0001-r1/out.log
# Written by hpcbench 1.0.0: study neox-hybrid, job j0001-r1, site marenostrum5.
# shellcheck disable=SC2317,SC2329 # functions that only traps call
set -u
root=/scratch/me/results/neox-hybrid/001
job=j0001-r1
cd -- "$root" || exit 74

# ---- drop variables of an outer job or launcher, which would silently change ours ----
outer=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-}}
[ -z "$outer" ] || echo "inside another launcher's rank: settings in OMPI_MCA_*, PRTE_MCA_* and PMIX_MCA_* are dropped" >&2
for name in $(compgen -e); do
  case $name in
    OMPI_MCA_* | PRTE_MCA_* | PMIX_MCA_* | OMPI_ALLOW_RUN_AS_ROOT*) # settings of the user reach the launcher
      [ -z "$outer" ] || unset -v "$name" ;;
    SLURM_CONF | SLURM_CLUSTERS | LSF_ENVDIR | LSF_SERVERDIR | LSF_BINDIR | LSF_LIBDIR) ;;
    SLURM_CPU_BIND* | SLURM_MEM_BIND* | SLURM_GPU_BIND* | SLURM_DISTRIBUTION | SLURM_STEP* | SLURM_PROCID | SLURM_LOCALID | SLURM_LAUNCH_* | SLURM_SRUN_* | SLURM_PMI* | SRUN_* | SBATCH_* | LSB_* | LS_* | JSM_* | FLUX_*) unset -v "$name" ;;
    PMI_* | PMIX_* | OMPI_* | PRTE_* | HYDRA_* | HYDI_* | MPIEXEC_*) unset -v "$name" ;;
    MPI_LOCALNRANKS | MPI_LOCALRANKID | CRAY_PMI* | PALS_* | PBS_*) unset -v "$name" ;;
  esac
done

# ---- the id of this job, and the number of this attempt ----
id=${SLURM_JOB_ID:-}
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}
attempt=1
while [ -e "jobs/$job/attempts/$attempt.json" ]; do attempt=$((attempt + 1)); done
[ ! -e "jobs/$job/status.json" ] || attempt=$((attempt + 1))
export HPCBENCH_ATTEMPT=$attempt

# ---- signals and the end; `python -m hpcbench.job` does the rest, and records the states of the job and its runs ----

# A trap writes the signal's name into a pipe that the driver reads. So a signal that comes before Python is ready is not
# lost, and does not end Python. The driver writes its exit status into a pipe, because bash 5.2's `wait` loses it or
# hangs when a trapped signal comes. For the same reason there is no command substitution from here on.
runs=() noted='' interpreter='' status=''
exec {signals}<> <(:) {result}<> <(:) {idle}<> <(:)
ignore_signals() { trap '' TERM INT HUP USR1 USR2 URG; }
note() {
  [[ $noted == *" $1 "* ]] || { noted+=" $1 " && echo "$1" >&"$signals"; }
}
set -m # the driver gets a process group of its own
trap 'finish "$?"' EXIT
trap 'note TERM' TERM
trap 'note INT' INT
trap 'note HUP' HUP
trap 'note USR1' USR1

# run ID COMMAND...: add a run
run() { runs+=("$1" "$(($# - 1))" "${@:2}"); }

# find_python: set `interpreter` to one that can run the driver: that which wrote this script, or that of the ranks
find_python() {
  for interpreter in /home/me/venv/bin/python python3 ''; do
    [ -z "$interpreter" ] || ! (ignore_signals && exec "$interpreter" -c 'import hpcbench.job.main') || return 0
  done
  return 127
}

# drive OPTION...: run the driver, wait for it, and set `status` to its answer
drive() {
  local child
  [ -n "$interpreter" ] || find_python || return
  {
    ignore_signals # until Python has its own handlers
    exec "$interpreter" -m hpcbench.job --scheduler slurm --job "$job" --id "$id" --script $$ --pipes "$signals" "$result" \
      --walltime 5400 --stop-ahead 120 --doctor=python3 "$@" < <(! type module > /dev/null 2>&1 || module list 2>&1)
  } &
  child=$!
  while kill -0 "$child" 2> /dev/null; do read -r -t 0.2 -u "$idle"; done
  kill -KILL -- "-$child" 2> /dev/null # what it left behind
  read -r -t 1 -u "$result" status || return 137 # it was killed
  return "$status"
}

# finish STATUS: the last steps, however this script ends
finish() {
  ignore_signals
  [ -n "$status" ] || drive --ended "$1" || [ -n "$status" ] || leave_status "$1"
  teardown
}

# leave_status STATUS: the status file of a job whose states no Python can record, unless another script has the job
leave_status() {
  local claim=0 text='' ours=''
  while [ -e "jobs/$job/claims/$((claim + 1))" ]; do claim=$((claim + 1)); done
  if [ "$claim" -gt 0 ] && [ ! -e "jobs/$job/claims/$claim.end" ]; then
    read -r text < "jobs/$job/claims/$claim"
    [[ $text == *"\"process\": \"$$ "*" $HOSTNAME\""* ]] || return 0
    ours=1
  fi
  if [ -z "$ours" ] && [ -e "jobs/$job/status.json" ]; then
    mkdir -p "jobs/$job/attempts"
    mv -f -- "jobs/$job/status.json" "jobs/$job/attempts/$((attempt - 1)).json"
  fi
  printf '{"state": "ended", "exit": %d, "why": "exit %d, and no Python here runs hpcbench.job: see %s", "attempt": %d}\n' \
    "$1" "$1" "jobs/$job/out.log" "$attempt" > "jobs/$job/status.json"
}

teardown() {
  return 0
}

# ---- the environment of the ranks ----
export OMP_NUM_THREADS=20

# ---- the runs: one after another, each with its id and its command ----
launch=(mpirun -np 48 --map-by ppr:4:node:PE=20 --bind-to core)
worker=(python3 -u -m hpcbench.train)
run r1-nodes12-baseline "${launch[@]}" "${worker[@]}" runs/r1-nodes12-baseline/run.json
run r1-nodes12-naive-mpc "${launch[@]}" "${worker[@]}" runs/r1-nodes12-naive-mpc/run.json
run r1-nodes12-naive-zfp8 "${launch[@]}" "${worker[@]}" runs/r1-nodes12-naive-zfp8/run.json
run r1-nodes12-naive-zfp16 "${launch[@]}" "${worker[@]}" runs/r1-nodes12-naive-zfp16/run.json
run r1-nodes12-mzhybrid "${launch[@]}" "${worker[@]}" runs/r1-nodes12-mzhybrid/run.json
run r1-nodes12-zhybrid-16-8 "${launch[@]}" "${worker[@]}" runs/r1-nodes12-zhybrid-16-8/run.json
exec {commands}< <(ignore_signals && printf '%s\0' "${runs[@]}") # a command line has a maximum length
drive --runs "$commands"
exit
