"""NCCL test program for two ranks: version, transport between ranks, and all-reduce speed.

Rank 0 prints one line per fact. `hpcbench.doctor.nccl` starts the program and parses the lines.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

_BYTES = 64 << 20
"""All-reduce size in bytes, large enough to reach the full speed of any link."""
_TIMES, _WARM_UP = 10, 3


def describe_ways(log: str) -> dict[str, str]:
    """Extract facts from NCCL's log (``NCCL_DEBUG=INFO``): interface, channel transports, and GPUDirect."""
    facts = {}
    used = re.findall(r"NET/(?:IB|Socket) : Using (.+)", log)
    if used:
        facts["interface"] = " ".join(used[0].split())
    ways = sorted(set(re.findall(r"Channel \d+.* via ([\w/]+)", log)))
    if ways:
        facts["ways"] = ", ".join(ways)
        over_net = [way for way in ways if way.startswith("NET/")]
        if over_net:
            facts["gpudirect"] = "yes" if all(way.endswith("GDRDMA") for way in over_net) else "no"
    return facts


def measure(communicator: Any, accelerator: Any, nbytes: int = _BYTES, times: int = _TIMES) -> float:
    """Return the median time of an fp32 all-reduce in seconds."""
    from statistics import median

    import numpy as np
    from mpi4py import MPI

    stream, buf = accelerator.new_stream(), accelerator.memory(nbytes).view(np.float32)
    zeros = np.zeros(buf.size, np.float32)
    accelerator.copy(buf, zeros, stream)
    seconds = []
    for _ in range(_WARM_UP + times):
        begin = accelerator.mark(stream)
        communicator.all_reduce(buf, MPI.SUM, stream)
        end = accelerator.mark(stream)
        end.wait()
        seconds.append(end.since(begin))
    return float(median(seconds[_WARM_UP:]))


def main() -> None:
    """Test NCCL and print the facts."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    log = Path(tempfile.mkstemp(prefix="hpcbench-nccl-")[1])
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,GRAPH,P2P,ENV", NCCL_DEBUG_FILE=str(log))
    try:
        from cupy.cuda import runtime

        from hpcbench.comm import nccl
        from hpcbench.comm.accelerator import CupyAccelerator

        number = comm.rank % runtime.getDeviceCount()
        runtime.setDevice(number)
        gpus = comm.allgather((MPI.Get_processor_name(), str(runtime.getDeviceProperties(number)["uuid"])))
        if len(set(gpus)) < comm.size:
            os.environ["NCCL_HOSTID"] = f"rank{comm.rank}"  # otherwise NCCL refuses two ranks on one GPU
        communicator, accelerator = nccl.connect(comm), CupyAccelerator(number)
        seconds = measure(communicator, accelerator)
        facts = {
            "version": nccl.version_text(nccl.load().get_version()),
            **describe_ways(log.read_text(encoding="utf-8", errors="replace")),
            "rate": f"{2 * (comm.size - 1) / comm.size * _BYTES / seconds:.4g}",
            **({"shared": "yes"} if len(set(gpus)) < comm.size else {}),
        }
        if comm.rank == 0:
            os.write(1, "".join(f"nccl {name}={value}\n" for name, value in facts.items()).encode())
        communicator.free()
    finally:
        log.unlink(missing_ok=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
