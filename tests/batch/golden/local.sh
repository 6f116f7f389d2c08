#!/bin/bash
# Written by hpcbench 0.1.0: study demo, job j0001-r1, site local.
# shellcheck disable=SC2317,SC2329 # functions that traps alone call
set -u
root='/home/me/it'"'"'s $HOME/results/demo/001'
job=j0001-r1
runs=(r1-baseline r1-naive-zfp8 r1-mzhybrid r1-zhybrid-16-8)
cd -- "$root" || exit 74

# Variables of an outer job or launcher would steer ours, silently.
for name in $(compgen -e); do
  case $name in
    SLURM_CONF | SLURM_CLUSTERS | LSF_ENVDIR | LSF_SERVERDIR | LSF_BINDIR | LSF_LIBDIR) ;;
    SLURM* | SRUN_* | SBATCH_* | LSB_* | LSF_* | LS_* | JSM_* | FLUX_* | I_MPI_*) unset -v "$name" ;;
    PMI_* | PMIX_* | OMPI_* | PRTE_* | HYDRA_* | HYDI_* | MPIEXEC_*) unset -v "$name" ;;
    MPI_LOCALNRANKS | MPI_LOCALRANKID | CRAY_PMI* | PALS_* | PBS_*) unset -v "$name" ;;
  esac
done

# ---- the claim: a scheduler may take a job twice, and people may start it twice; one script at a time holds it ----

# listed ID PROCESS: whether the job of that id is still there, by its scheduler; 2 where nobody can say
listed() { return 2; }

# process PID: sets `found` to what tells this process from any other; empty where it is gone
process() {
  local line='' boot='' fields=()
  found=''
  [ ! -r "/proc/$1/stat" ] || read -r line 2> /dev/null < "/proc/$1/stat"
  read -r boot 2> /dev/null < /proc/sys/kernel/random/boot_id
  read -r -a fields <<< "${line##*) }"
  [ -z "$line" ] || [[ ${fields[0]} == [ZX] ]] || found="$1 ${fields[19]} $boot $HOSTNAME"
}

# runs_here PROCESS: whether the process that wrote this is still there; 2 where it ran on another node
runs_here() {
  [ "${1##* }" = "$HOSTNAME" ] || return 2
  process "${1%% *}"
  [ -n "$found" ] && [ "$found" = "$1" ]
}

# leave WORDS [STATUS]: end this script, which has touched nothing of the job's
leave() {
  echo "$start job $job: $1" >&2
  rm -f -- "$own"
  exit "${2:-73}"
}

# follow CLAIM: go on if who made the claim is over, else leave
follow() {
  local said='' by status
  # Names that hpcbench gives are new each time: one that has been here was sent twice, and is not to run twice.
  if [[ $name =~ [-_][0-9a-f]{6}[-_][aj][0-9] ]] &&
    grep -shF "\"name\": \"$name\"" "${1%/*}"/[0-9]* | grep -qvF "\"holder\": \"$holder\""; then
    leave "was taken more than once, and another one has it, by ${1%/*}"
  fi
  [ ! -e "$1.end" ] || return 0
  read -r said < "$1"
  [[ $said =~ \"holder\":\ \"([^\"]*)\",\ \"process\":\ \"([^\"]*)\" ]] ||
    leave "$1 cannot be read: somebody else may run it: remove that file if nobody does"
  by=("${BASH_REMATCH[@]:1}")
  if [ "${by[0]}" = "$holder" ] || [ "${by[0]}" = "${by[1]}" ]; then
    runs_here "${by[1]}"
    status=$?
    [ "${by[0]}" != "$holder" ] || [ "$status" -ne 2 ] || return 0 # put back into its queue, and on another node now
  else
    listed "${by[0]}" "${by[1]}"
    status=$?
  fi
  case $status in
    0) leave "job ${by[0]} runs it, by $1" ;;
    1) return 0 ;;
    *) leave "job ${by[0]} may still run it, and nobody here can say: remove $1 if it is over" ;;
  esac
}

# hold: make the next claim, by a link, which only one can make; or leave
hold() {
  local own=jobs/$job/claims/.$HOSTNAME.$$ holder=${id//[!A-Za-z0-9_.\[\]-]/?} last=0
  name=${name//[!A-Za-z0-9_.\[\]-]/?}
  process $$
  holder=${holder:-$found}
  for _ in once again; do
    why=''
    { mkdir -p "jobs/$job/claims" && printf '{"holder": "%s", "process": "%s", "name": "%s", "start": "%s"}\n' \
      "$holder" "$found" "$name" "$start" > "$own"; } 2>&"$words" && break
    no_room "$own"
  done
  [ -s "$own" ] || leave "$why" 74
  while
    while [ -e "jobs/$job/claims/$((last + 1))" ]; do last=$((last + 1)); done
    [ "$last" -eq 0 ] || follow "jobs/$job/claims/$last"
    claim=jobs/$job/claims/$((last + 1)) next=jobs/$job/claims/$((last + 2))
    ln -- "$own" "$claim" 2> /dev/null
    ! [ "$own" -ef "$claim" ] # a file server may do it, and say that it has failed
  do
    [ -e "$claim" ] || leave "cannot make $root/$claim as a link"
  done
  rm -f -- "$own"
}

# ours: whether nobody has taken the job from this script, because its scheduler had called it over
ours() { [ ! -e "$next" ]; }

# release: let the next one have the job
release() {
  now
  mark "$claim.end" '%s\n' "$time" || mark "$claim.end" '%s\n' "$time"
  rm -f -- "$reserve"
}

# ---- marks: what is known of job and runs, whatever the scheduler says ----

# now: sets `time`
# From the traps on there is no command substitution: a trapped signal may come while bash 5.2 reads one, and it fails.
now() { TZ=UTC0 printf -v time '%(%Y-%m-%dT%H:%M:%SZ)T' -1; }

# mark FILE FORMAT VALUE...: the file is there whole, or not at all; fails where the disk takes no more
mark() {
  local file=$1
  shift
  # shellcheck disable=SC2059
  { printf "$@" > "$file.tmp" && mv -f -- "$file.tmp" "$file"; } 2>&"$words" && return 0
  no_room "$file.tmp"
}

# no_room FILE: sets `why` to what the system just said of a file, and gives back the room that was set aside
no_room() {
  local said=''
  why="$disk: cannot be written"
  while read -r -t 0.1 -u "$words" said; do why="$disk: ${said##*: }"; done
  why=${why//[\\\"]/?}
  rm -f -- "$1" "$reserve"
  return 1
}

# set_aside FILE: keep room on the disk, in which the end can be written
set_aside() {
  [ ! -s "$1" ] || return 0
  { printf '%65536s' '' > "$1"; } 2>&"$words" && return 0
  no_room "$1"
}

# json: lines as JSON strings, whatever is in them
json() { LC_ALL=C sed 's/[^ -~]/?/g; s/[\\"]/\\&/g; s/.*/"&"/' | paste -s -d , -; }

# mark_job STATE [EXIT]
mark_job() {
  ours || return 0
  now
  for _ in once again; do
    mark "jobs/$job/status.json" \
      '{"state": "%s"%s%s, "attempt": %d, "start": "%s"%s, "host": %s, "hosts": [%s], "id": %s}\n' \
      "$1" "${2:+, \"exit\": $2}" "${why:+, \"why\": \"$why\"}" "$attempt" "$start" \
      "${2:+, \"end\": \"$time\"}" "$host" "$hosts" "$id_json" && return 0
  done
  echo "$time $why" >&2
  return 1
}

# mark_run STATE [EXIT]
mark_run() {
  ours || return 0
  now
  for _ in once again; do
    mark "runs/$run/status.json" \
      '{"state": "%s"%s%s%s, "attempt": %d, "start": "%s"%s, "host": %s, "job": "%s", "id": %s}\n' \
      "$1" "${2:+, \"exit\": $2}" "${over:+, \"limit\": \"walltime\"}" \
      "${why:+, \"why\": \"$why\"}" "$attempt" "$began" "${2:+, \"end\": \"$time\"}" "$host" "$job" "$id_json" && return 0
  done
  echo "$time $why" >&2
  return 1
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

# allow: set `limit`, the seconds after which the next run is asked to stop (0: no limit), and `stop_time`, those that it
# then has to write its checkpoint
allow() {
  stop_time=120
  # An equal part of the time until the job's stop request.
  limit=$(((86280 - SECONDS) / waiting))
  [ "$limit" -ge 1 ] || limit=1
  [ "$waiting" -gt 1 ] || return 0 # no run waits behind the last
  [ "$stop_time" -le "$limit" ] || stop_time=$limit # a run that does not stop keeps little from the others
}

# run ID LAUNCHER...: launch a run and wait for it; a failure does not stop the next one
run() {
  local limit=0 stop_time=0 launched=0 over='' ended='' status
  ours || exit 73 # first: what is completed may be so by the one who has the job now
  ! completed "$1" || return 0
  ticked=$SECONDS
  keep_time
  heed
  [ -z "$stopping" ] || return 0
  allow
  keep_old "$1"
  now
  run=$1 began=$time launched=$SECONDS waiting=$((waiting - 1)) why=''
  shift
  if set_aside "$reserve" && set_aside "runs/$run/reserve" && mark_run running && [ -z "$why" ]; then
    launch "$@" /opt/venv/bin/python -u -m hpcbench.train "runs/$run/run.json" > /dev/null 2>&1 &
    child=$!
    watch_child
    child=
    sweep
    [ -z "$ended" ] || status=124
    if [ "$status" -eq 0 ]; then
      over=''
    elif [ -n "$over" ] && { [ -z "$ended" ] || compgen -G "runs/$run/checkpoint/step-*" > /dev/null; }; then
      unfinished=1 # it can be continued
    fi
  else
    status=74
  fi
  mark_run ended "$status" || failed=1
  rm -f -- "runs/$run/reserve" # its worker gives it back before the last event, but may have been killed
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

# keep_time: do what is due: the stop request ahead of the job's limit or at the run's, and the end of a run that stays
keep_time() {
  local past
  # While its scheduler has it stopped, a job is not charged: its clock stands still too.
  [ $((SECONDS - ticked)) -lt 10 ] || SECONDS=$ticked
  ticked=$SECONDS
  [ "$SECONDS" -lt 86280 ] || stopping=1 # Flux never asks the script alone, others may be late
  [ -z "$stopping" ] || ask
  past=$((SECONDS - launched - limit))
  [ "$limit" -gt 0 ] && [ "$past" -gt 0 ] || return 0
  [ -n "$stopping" ] || over=1 # else the job's limit came first
  ask
  [ -z "$ended" ] && [ "$past" -gt "$stop_time" ] || return 0
  over=1 ended=1
  kill -TERM -- "-$child" 2> /dev/null
  leaves 50 || kill -KILL -- "-$child" 2> /dev/null
}

# ask: the run is to write its checkpoint and leave
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
  release
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
  keep python /opt/venv/bin/python -m hpcbench.doctor.job &
  keep limits ulimit -a &
  keep system uname -a &
  keep nvidia-smi nvidia-smi -q &
  keep rocm-smi rocm-smi -a &
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

ticked=0 child='' run='' stopping='' unfinished='' leaving='' grace=0 failed=0
SECONDS=0
reserve=jobs/$job/reserve why=''
disk=$(df -P -- "$root" 2> /dev/null | sed -n '2s/.*% //p')
disk=${disk:-$root}
exec {pipe}<> <(:) {idle}<> <(:) {words}<> <(:) # the exit status of a launcher; nothing, ever; what is said of files
now
start=$time

# id of this job, its name in the queue where that can be told, and its hosts, one a line
name=''
id=$$
listed() { runs_here "$2"; }
host_list() { uname -n; }
hold
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

id_json=$(json <<< "${id//[$'\n']/?}")
hosts=$(host_list | json)
host=$(uname -n | json)

set -m # the launcher gets a process group of its own, so that a signal reaches all of it
trap 'finish "$?"' EXIT
trap 'leaving=143' TERM
trap 'leaving=130' INT
trap 'leaving=129' HUP
trap 'stopping=1' USR1
set_aside "$reserve"
mark_job running && [ -z "$why" ] || exit 74 # what comes now would be lost

export OMP_NUM_THREADS=1

provenance
[ ! -e "jobs/$job/provenance/python.txt" ] || tail -n 1 -- "jobs/$job/provenance/python.txt"

launch=(/opt/venv/bin/mpiexec -n 8 -bind-to none)
run r1-baseline "${launch[@]}"
run r1-naive-zfp8 "${launch[@]}"
run r1-mzhybrid "${launch[@]}"
run r1-zhybrid-16-8 "${launch[@]}"

heed
ours || exit 73
if [ -n "$stopping$unfinished" ]; then
  for name in "${runs[@]}"; do
    completed "$name" && continue
    exit 75
  done
fi
exit "$failed"
