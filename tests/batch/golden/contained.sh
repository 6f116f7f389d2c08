#!/bin/bash
#SBATCH --job-name=neox-hybrid-j0001-r1
#SBATCH --nodes=12
#SBATCH --ntasks=48
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=01:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --partition=gpu
#SBATCH --account=my-bank
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --chdir=/scratch/me/results/neox-hybrid/001
#SBATCH --output=/scratch/me/results/neox-hybrid/001/jobs/j0001-r1/out.log
# Written by hpcbench 0.1.0: study neox-hybrid, job j0001-r1, site contained.
# shellcheck disable=SC2317,SC2329 # functions that traps alone call
set -u
root=/scratch/me/results/neox-hybrid/001
job=j0001-r1
runs=(r1-nodes12-baseline r1-nodes12-naive-mpc r1-nodes12-naive-zfp8 r1-nodes12-naive-zfp16 r1-nodes12-mzhybrid r1-nodes12-zhybrid-16-8)
cd -- "$root" || exit 1

# Variables of an outer job or launcher would steer ours, silently.
for name in $(compgen -e); do
  case $name in
    SLURM_CONF | SLURM_CLUSTERS | LSF_ENVDIR | LSF_SERVERDIR | LSF_BINDIR | LSF_LIBDIR) ;;
    SLURM_CPU_BIND* | SLURM_MEM_BIND* | SLURM_GPU_BIND* | SLURM_DISTRIBUTION | SLURM_STEP* | SLURM_PROCID | SLURM_LOCALID | SLURM_LAUNCH_* | SLURM_SRUN_* | SLURM_PMI* | SRUN_* | SBATCH_* | LSB_* | LS_* | JSM_* | FLUX_*) unset -v "$name" ;;
    PMI_* | PMIX_* | OMPI_* | PRTE_* | HYDRA_* | HYDI_* | MPIEXEC_*) unset -v "$name" ;;
    MPI_LOCALNRANKS | MPI_LOCALRANKID | CRAY_PMI* | PALS_* | PBS_*) unset -v "$name" ;;
    APPTAINERENV_* | SINGULARITYENV_* | APPTAINER_BIND* | SINGULARITY_BIND* | SHIFTER*) unset -v "$name" ;;
  esac
done

# ---- marks: what is known of job and runs, whatever the scheduler says ----

# now: sets `time`
# From the traps on there is no command substitution: a trapped signal may come while bash 5.2 reads one, and it fails.
now() { TZ=UTC0 printf -v time '%(%Y-%m-%dT%H:%M:%SZ)T' -1; }

# mark FILE FORMAT VALUE...: the file is there whole, or not at all
mark() {
  local file=$1
  shift
  # shellcheck disable=SC2059
  printf "$@" > "$file.tmp" && mv -f -- "$file.tmp" "$file"
}

# json: lines as JSON strings, whatever is in them
json() { LC_ALL=C sed 's/[^ -~]/?/g; s/[\\"]/\\&/g; s/.*/"&"/' | paste -s -d , -; }

# mark_job STATE [EXIT]
mark_job() {
  now
  mark "jobs/$job/status.json" '{"state": "%s"%s, "attempt": %d, "start": "%s"%s, "host": %s, "hosts": [%s], "id": %s}\n' \
    "$1" "${2:+, \"exit\": $2}" "$attempt" "$start" "${2:+, \"end\": \"$time\"}" "$host" "$hosts" "$id_json"
}

# mark_run STATE [EXIT]
mark_run() {
  now
  mark "runs/$run/status.json" '{"state": "%s"%s, "attempt": %d, "start": "%s"%s, "host": %s, "job": "%s", "id": %s}\n' \
    "$1" "${2:+, \"exit\": $2}" "$attempt" "$began" "${2:+, \"end\": \"$time\"}" "$host" "$job" "$id_json"
}

# completed RUN: by its mark, of this attempt or of one before
completed() { grep -qs '"state": "ended", "exit": 0,' "runs/$1/status.json"; }

# keep_old RUN: what an earlier attempt left gets the number of that attempt
keep_old() {
  local name='' old=0
  [ ! -e "runs/$1/status.json" ] || read -r name < "runs/$1/status.json"
  [[ ! $name =~ \"attempt\":\ ([0-9]+) ]] || old=${BASH_REMATCH[1]}
  for name in log.txt err.txt status.json; do
    [ ! -e "runs/$1/$name" ] || mv -f -- "runs/$1/$name" "runs/$1/${name%.*}.$old.${name##*.}"
  done
  rm -f -- "runs/$1/stop"
}

# ---- runs ----

# allow: sets `limit`, the seconds that the next run may take; 0 for no limit
allow() {
  # An equal part of the time until the stop request; what comes last has the rest, to write its checkpoint in.
  limit=$(((5280 - SECONDS) / waiting))
  [ "$waiting" -gt 1 ] || limit=$((5400 - SECONDS))
  [ "$limit" -ge 1 ] || limit=1
}

# run ID LAUNCHER...: launch a run and wait for it; a failure does not stop the next one
run() {
  local limit=0 launched=0 over='' status
  ! completed "$1" || return 0
  keep_time
  heed
  [ -z "$stopping" ] || return 0
  allow
  keep_old "$1"
  now
  run=$1 began=$time launched=$SECONDS waiting=$((waiting - 1))
  shift
  mark_run running
  launch "$@" apptainer exec --bind /scratch/me/results/neox-hybrid/001:/scratch/me/results/neox-hybrid/001 --bind /data:/data:ro --bind /opt/mpich/lib:/opt/mpich/lib:ro --pwd /scratch/me/results/neox-hybrid/001 --nv --cleanenv '/sw/it'"'"'s mine.sif' sh -c 'LD_LIBRARY_PATH="$0${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$@"' /opt/mpich/lib python3 -u -m hpcbench.train "runs/$run/run.json" > /dev/null 2>&1 &
  child=$!
  watch_child
  child=
  sweep
  [ -z "$over" ] || status=124
  mark_run ended "$status"
  run=
  [ "$status" -eq 0 ] || failed=1
}

# launch COMMAND...: the launcher with its logs; its exit status goes into the pipe, whatever signals the group gets
launch() {
  trap : TERM INT HUP USR1 USR2 URG # the launcher itself gets them as usual
  HPCBENCH_RUN=$root/runs/$run "$@" > "runs/$run/log.txt" 2> "runs/$run/err.txt" < /dev/null
  echo "$?" >&"$pipe"
}

# watch_child: sets `status` when the launcher has ended; meanwhile acts on signals and limits
# The builtin `wait` will not do: a trapped signal makes bash 5.2 lose the status, or wait for ever.
watch_child() {
  while kill -0 "$child" 2> /dev/null; do
    keep_time
    heed
    read -r -t 0.2 -u "$idle"
  done
  heed # a signal to all processes of the job, as LSF sends it, ends the launcher too
  read -r -t 5 -u "$pipe" status || status=137 # killed before it could say
}

# keep_time: what is due: the stop request ahead of the job's limit, and the end of a run that has met its own
keep_time() {
  [ "$SECONDS" -lt 5280 ] || stopping=1 # Flux never asks the script alone, others may be late
  [ -z "$stopping" ] || ask
  if [ -z "$over" ] && [ "$limit" -gt 0 ] && [ $((SECONDS - launched)) -gt "$limit" ]; then
    over=1
    kill -TERM -- "-$child" 2> /dev/null
    leaves 50 || kill -KILL -- "-$child" 2> /dev/null
  fi
}

# ask: the run is to write its checkpoint and leave; none is started after it
ask() { [ -z "$run" ] || [ -e "runs/$run/stop" ] || : > "runs/$run/stop"; }

# sweep: end what is left of the run on this node, whatever group, session or parent it has by now
sweep() {
  for _ in 1 2 3; do # what forks meanwhile is found by the next look
    grep -lszxF -e "HPCBENCH_RUN=$root/runs/$run" /proc/[0-9]*/environ | kill_each || return 0
  done
}

# kill_each: end the processes that the paths /proc/ID/environ on standard input name; whether there are any
kill_each() {
  local path found
  found=1
  while read -r path; do
    kill -KILL "${path//[!0-9]/}"
    found=0
  done 2> /dev/null
  return "$found"
}

# ---- signals: a trap only notes what is to be done, and `heed` does it between two commands ----

# heed: leave, if a signal has said so
heed() { [ -z "$leaving" ] || quit; }

# leaves TENTHS: whether the run's launcher and its group are gone within that time
leaves() {
  local left
  for ((left = $1; left > 0; left--)); do
    kill -0 -- "-$child" 2> /dev/null || return 0
    sleep 0.1
  done
  return 1
}

# quit: end the run and all it started, then this script; first the run may leave by itself, for `grace` tenths
quit() {
  trap '' TERM INT HUP USR1 USR2 URG
  local status=$leaving
  if [ -n "$child" ]; then
    [ -z "$stopping" ] || ask
    if leaves "$grace"; then
      read -r -t 5 -u "$pipe" status || status=$leaving
    else
      kill -TERM -- "-$child" 2> /dev/null
      leaves 50
    fi
    sweep
  fi
  [ -z "$run" ] || mark_run ended "$status"
  exit "$leaving"
}

# finish STATUS: the last that is done, however this script ends
finish() {
  trap '' TERM INT HUP USR1 USR2 URG
  mark_job ended "$1"
  teardown
}

teardown() {
  return 0
}

# ---- what is recorded beside the results ----

# keep NAME COMMAND...: what a command says, if there is one
keep() {
  local name=$1
  shift
  ! type "$1" > /dev/null 2>&1 || "$@" > "jobs/$job/provenance/$name.txt" 2>&1 < /dev/null
}

# variables: the environment, sorted; no secrets by their names, no passwords in addresses
variables() {
  local name
  for name in $(compgen -e | LC_ALL=C sort); do
    case ${name^^}=${!name} in
      *TOKEN*=* | *SECRET*=* | *PASSW*=* | *PASSPHRASE*=* | *CREDENTIAL*=* | *KEY*=* | *://*:*@*) echo "# $name is left out" ;;
      *) printf '%s=%q\n' "$name" "${!name}" ;;
    esac
  done
}

record() {
  (umask 077 && keep environment variables) & # no filter knows all that it may hold
  keep modules module list &
  keep limits ulimit -a &
  keep system uname -a &
  keep nvidia-smi nvidia-smi -q &
  keep rocm-smi rocm-smi -a &
  keep job scontrol show job "$id" &
  wait
}

# provenance: record that, within 20 s, in whatever state a command may hang
provenance() {
  local recorder
  mkdir -p "jobs/$job/provenance"
  record &
  recorder=$!
  for _ in {1..200}; do
    kill -0 "$recorder" 2> /dev/null || return 0
    [ -z "$leaving" ] || break
    sleep 0.1
  done
  kill -KILL -- "-$recorder"
  now
  [ -n "$leaving" ] || echo "$time provenance: not complete after 20 s" >&2
}

# ---- this attempt ----

child='' run='' stopping='' leaving='' grace=0 failed=0
SECONDS=0
now
start=$time
attempt=1
while [ -e "jobs/$job/attempts/$attempt.json" ]; do attempt=$((attempt + 1)); done
if [ -e "jobs/$job/status.json" ]; then
  mkdir -p "jobs/$job/attempts"
  mark "jobs/$job/attempts/$attempt.json" '%s\n' "$(< "jobs/$job/status.json")"
  [ ! -e "jobs/$job/provenance" ] || mv -f -- "jobs/$job/provenance" "jobs/$job/attempts/$attempt.provenance"
  attempt=$((attempt + 1))
fi
export HPCBENCH_ATTEMPT=$attempt
waiting=0
for name in "${runs[@]}"; do completed "$name" || waiting=$((waiting + 1)); done

# id of this job, and its hosts, one a line
id=${SLURM_JOB_ID:-}
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}
host_list() { scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2> /dev/null || echo "${SLURM_JOB_NODELIST:-}"; }
id_json=$(json <<< "${id//[$'\n']/?}")
hosts=$(host_list | json)
host=$(uname -n | json)

exec {pipe}<> <(:) {idle}<> <(:) # what comes out is the exit status of a launcher; nothing, ever
set -m # the launcher gets a process group of its own, so that a signal reaches all of it
trap 'finish "$?"' EXIT
trap 'leaving=143' TERM
trap 'leaving=130' INT
trap 'leaving=129' HUP
trap 'stopping=1' USR1
mark_job running

export OMP_NUM_THREADS=8
# What ranks compare themselves with, inside.
export HPCBENCH_CONTAINER='apptainer /sw/it'"'"'s mine.sif' HPCBENCH_VERSION=0.1.0
export HPCBENCH_MPI_PATHS=/opt/mpich/lib

provenance
[ ! -e "jobs/$job/provenance/python.txt" ] || tail -n 1 -- "jobs/$job/provenance/python.txt"

launch=(srun --nodes=12 --ntasks=48 --ntasks-per-node=4 --cpus-per-task=8 --cpu-bind=cores --gpu-bind=none --mpi=pmi2)
run r1-nodes12-baseline "${launch[@]}"
run r1-nodes12-naive-mpc "${launch[@]}"
run r1-nodes12-naive-zfp8 "${launch[@]}"
run r1-nodes12-naive-zfp16 "${launch[@]}"
run r1-nodes12-mzhybrid "${launch[@]}"
run r1-nodes12-zhybrid-16-8 "${launch[@]}"

heed
if [ -n "$stopping" ]; then
  for name in "${runs[@]}"; do
    completed "$name" && continue
    exit 75
  done
fi
exit "$failed"
