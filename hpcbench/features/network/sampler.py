"""Process that samples the network counters of a node while a program runs.

The process is detached and holds no pipe open, so a launcher does not wait for it. The sampling process exits when the
program exits.
"""

import json
import os
import re
import signal
import time
from pathlib import Path

from hpcbench.features.network.counters import read_counters
from hpcbench.features.network.nvlink import NvLinks

_INTERVAL_S = 0.25
_LONG_RUN_S = 600.0
"""Run time in seconds after which samples are taken less often.

In a long run, the exact times of individual steps matter less.
"""
_LONG_INTERVAL_S = 2.0


def start_sampler(path: Path, program: int) -> None:
    """Start a process that appends samples to a file until the local process `program` (a PID) exits.

    Each line is a JSON object with three keys: ``time`` (seconds since the epoch), ``shared`` (whether other jobs may
    use the node), and ``devices`` (a map from device name to kind, sent bytes and received bytes).
    """
    started = _find_start(program)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _detach()
            _sample(path, program, started)
    finally:
        os._exit(0)


def _detach() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the sampler must outlive signals to the job
        signal.signal(ignored, signal.SIG_IGN)
    os.closerange(0, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)


def _sample(path: Path, program: int, started: str | None) -> None:
    begin, is_shared, links = time.monotonic(), shares_node(), NvLinks()
    with path.open("a", encoding="utf-8") as file:
        while True:
            runs = started is not None and _find_start(program) == started
            readings = {**read_counters(), **links.read()}
            devices = {name: (reading.kind, reading.sent, reading.received) for name, reading in readings.items()}
            file.write(json.dumps({"time": time.time(), "shared": is_shared, "devices": devices}) + "\n")
            file.flush()
            if not runs:
                return
            time.sleep(_INTERVAL_S if time.monotonic() - begin < _LONG_RUN_S else _LONG_INTERVAL_S)


def _find_start(process: int) -> str | None:
    """Return the start time of a process in clock ticks, or None if the process has exited."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


_MOST_CORES = 0.9
"""Fraction of a node's cores above which a job is considered alone on the node.

The fraction is below 1 because sites reserve some cores.
"""


def shares_node() -> bool:
    """Return whether other jobs may use the node, so that the counters include their traffic."""
    owned = os.environ.get("SLURM_CPUS_ON_NODE", "")
    cores = int(owned) if re.fullmatch("[0-9]{1,6}", owned) else len(os.sched_getaffinity(0))
    return cores < _MOST_CORES * (os.cpu_count() or 1)
