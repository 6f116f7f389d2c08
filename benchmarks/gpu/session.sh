#!/usr/bin/env bash
# Prove hpcbench on one GPU in 15 minutes. Run in the root of a checkout, with hpcbench, CuPy, PyTorch and NCCL installed:
#
#   bash benchmarks/gpu/session.sh [--dry] OUT [STEP...]
#
# Steps, in this order: facts kernels ranks codecs nccl2 nccl4 allreduce training pipeline slowlink large. Each writes OUT/STEP.txt
# and a line in OUT/summary.txt. A step that fails or exceeds its limit does not stop the next one. `--dry` runs what a machine
# without a GPU can run. Several ranks share the GPU: NCCL takes them for different hosts (NCCL_HOSTID) and uses sockets.
set -uo pipefail
dry=""
[ "${1:-}" = --dry ] && { dry=1; shift; }
out=$(mkdir -p "${1:?OUT, a directory for the results}" && cd "$1" && pwd)
shift
steps=${*:-facts kernels ranks codecs nccl2 nccl4 allreduce training pipeline slowlink large}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
cat >"$site/sitecustomize.py" <<'PY'
import os

rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
if rank:
    os.environ.setdefault("NCCL_HOSTID", f"rank{rank}")
PY
export PYTHONPATH=$site:$PWD/tests:$PWD/tests/codecs${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MAX_NCHANNELS=2
: >"$out/summary.txt"

# step NAME LIMIT COMMAND...: at most LIMIT seconds
step() {
    local name=$1 limit=$2 begin=$SECONDS status
    shift 2
    timeout -s INT -k 10 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null
    status=$?
    echo "$name: exit $status after $((SECONDS - begin)) s: $(grep -a '[^[:space:]]' "$out/$name.txt" | tail -n 1 | cut -c 1-160)" |
        tee -a "$out/summary.txt"
}

train() { # train OUT [OPTION...]: gpt2-small, NCCL's own collective and 8-bit integers
    "$python" benchmarks/train_gpu.py --schemes baseline identity naive-int8 --set train.transport=nccl "${@:2}" --out "$1"
}
slow_link() { # the same behind a loopback device of 1 Gbit/s, if this machine allows it
    tc qdisc add dev lo root tbf rate 1gbit burst 1mb latency 50ms || { echo "tc is not allowed here"; return 0; }
    trap 'tc qdisc del dev lo root' RETURN
    train "$out/training-1gbit"
}
export -f train slow_link
export python out

for name in $steps; do
    case $name$dry in
    facts*) step facts 60 bash -c 'nvidia-smi -L; git log --oneline -1; "$python" -m pip list; hpcbench doctor' ;;
    kernels) step kernels 150 "$python" -m pytest -q -p no:cacheprovider -m gpu tests/codecs/test_gpu.py -k "not 31_bits" ;;
    kernels1) step kernels 300 "$python" -m pytest -q -n 0 -p no:cacheprovider tests/codecs/test_gpu.py -k "not 31_bits" --collect-only ;;
    large) step large 120 "$python" -m pytest -q -p no:cacheprovider -m gpu tests/codecs/test_gpu.py -k 31_bits ;;
    large1) echo "large: needs a GPU" | tee -a "$out/summary.txt" ;;
    ranks) step ranks 150 "$python" -m pytest -q -p no:cacheprovider -m gpu tests/comm tests/parallel ;;
    ranks1) step ranks 300 "$python" -m pytest -q -n 0 -p no:cacheprovider -m gpu tests/comm tests/parallel --collect-only ;;
    codecs) step codecs 150 "$python" benchmarks/codecs_gpu.py ;;
    codecs1) step codecs 120 "$python" benchmarks/codecs_gpu.py --help ;;
    nccl2) step nccl2 100 mpiexec -n 2 "$python" -m mpi4py tests/comm/gpu_worker.py on_nccl ;;
    nccl4) step nccl4 120 mpiexec -n 4 "$python" -m mpi4py tests/comm/gpu_worker.py on_nccl ;;
    nccl21) step nccl2 300 mpiexec -n 2 "$python" -m mpi4py tests/comm/gpu_worker.py over_nccl ;;
    nccl41) step nccl4 300 mpiexec -n 4 "$python" -m mpi4py tests/comm/gpu_worker.py over_nccl ;;
    allreduce) step allreduce 100 mpiexec -n 2 "$python" -m mpi4py "$here/all_reduce.py" ;;
    allreduce1) step allreduce 100 mpiexec -n 2 "$python" -m mpi4py "$here/all_reduce.py" --dry --mib 0.25 1 ;;
    training) step training 150 bash -c 'train "$out/training"' ;;
    training1) step training 300 "$python" benchmarks/train_gpu.py --tiny --device cpu --out "$out/training" ;;
    pipeline) step pipeline 90 bash -c 'train "$out/pipeline" --set layout.pp=2' ;;
    pipeline1) step pipeline 300 mpiexec -n 2 "$python" -m mpi4py tests/parallel/nccl_training_worker.py main ;;
    slowlink) step slowlink 150 bash -c slow_link ;;
    slowlink1) step slowlink 20 bash -c 'command -v tc || echo "no tc here"' ;;
    *) echo "$name: no such step" | tee -a "$out/summary.txt" ;;
    esac
done
