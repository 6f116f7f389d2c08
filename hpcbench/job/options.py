"""Options with which a job script starts the driver."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class RunCommand(NamedTuple):
    """A run, and the command that starts its ranks."""

    id: str
    command: list[str]


@dataclass(frozen=True)
class JobOptions:
    """The options of a job."""

    scheduler: str
    """``slurm``, ``lsf``, ``flux`` or ``local``."""
    job: str
    """Name of the job's directory in ``jobs``."""
    id: str
    """The scheduler's id of this job; empty for a script that was started by hand."""
    script: int
    """Process id of the job script, the driver's parent."""
    signals: int
    """Descriptor from which the names of signals to the script are read."""
    result: int
    """Descriptor to which the exit status is written."""
    ended: int | None = None
    """Exit status of a script that ended without the driver. Then no run is started; the end is recorded."""
    walltime: int = 0
    """Walltime in seconds; 0 for no limit."""
    stop_ahead: int = 0
    """Time between the stop request to the runs and the walltime, in seconds."""
    run_limit: int = 0
    """Limit of a run in seconds; 0 for an equal part of the remaining walltime."""
    requeue: int = 0
    """Number of times that the job may be requeued."""
    easy: bool = False
    """Whether LSF allocates whole nodes, and counts a launch host with one slot among them."""
    host_file: tuple[str, int] | None = None
    """File that lists each host once per rank, and the number of ranks per host; None if no launcher reads one."""
    doctor: str = ""
    """The interpreter of the ranks, which the provenance describes; empty for one inside a container."""
    runs: tuple[RunCommand, ...] = ()


def parse_options(arguments: Sequence[str]) -> JobOptions:
    """Read the driver's command line, and the commands of the runs from the pipe that it names."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench.job", description="Started by job scripts.")
    parser.add_argument("--scheduler", required=True, choices=("slurm", "lsf", "flux", "local"))
    parser.add_argument("--job", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--script", required=True, type=int)
    parser.add_argument("--pipes", required=True, type=int, nargs=2)
    for name in ("ended", "walltime", "stop-ahead", "run-limit", "requeue", "runs"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--easy", action="store_true")
    parser.add_argument("--host-file", nargs=2)
    parser.add_argument("--doctor")
    options = vars(parser.parse_args(arguments))
    signals, result = options.pop("pipes")
    if host_file := options.pop("host_file"):
        options["host_file"] = host_file[0], int(host_file[1])
    descriptor = options.pop("runs")
    runs = () if descriptor is None else tuple(_read_runs(descriptor))
    given = {name: value for name, value in options.items() if value is not None}
    return JobOptions(signals=signals, result=result, runs=runs, **given)


def _read_runs(descriptor: int) -> list[RunCommand]:
    """Read the id, the number of words and the words of each run. A null byte ends each of these."""
    with open(descriptor, "rb") as stream:
        fields = [os.fsdecode(field) for field in stream.read().split(b"\0")[:-1]]
    runs, start = [], 0
    while start < len(fields):
        end = start + 2 + int(fields[start + 1])
        runs.append(RunCommand(fields[start], fields[start + 2 : end]))
        start = end
    return runs
