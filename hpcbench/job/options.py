"""Driver options passed by job scripts."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class RunCommand(NamedTuple):
    """A run and its launch command."""

    id: str
    command: list[str]


@dataclass(frozen=True)
class JobOptions:
    """Options of a job."""

    scheduler: str
    """``slurm``, ``lsf``, ``flux`` or ``local``."""
    job: str
    """Name of the job's directory in ``jobs``."""
    id: str
    """Scheduler id of this job, or an empty string if the script was started by hand."""
    script: int
    """Process id of the job script, which is the driver's parent."""
    signals: int
    """File descriptor from which to read the names of signals sent to the script."""
    result: int
    """File descriptor to which to write the exit status."""
    ended: int | None = None
    """Exit status of a script that ended without the driver. If set, the end is recorded and no run is started."""
    walltime: int = 0
    """Walltime in seconds. 0 means no limit."""
    stop_ahead: int = 0
    """Seconds between the stop request to the runs and the walltime."""
    run_limit: int = 0
    """Time limit of a run in seconds. 0 means an equal part of the remaining walltime."""
    requeue: int = 0
    """Maximum number of requeues."""
    easy: bool = False
    """Whether LSF allocates whole nodes, and lists them together with a launch host that has one slot."""
    host_file: tuple[str, int] | None = None
    """Path of the host file with one line per rank, and number of ranks per host. None if no host file is needed."""
    doctor: str = ""
    """Interpreter of the ranks, for the provenance, or an empty string if it is inside a container."""
    runs: tuple[RunCommand, ...] = ()


def parse_options(arguments: Sequence[str]) -> JobOptions:
    """Parse the driver's command line, and read the runs' launch commands from the pipe in its options."""
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
    """Read the id, number of words, and words of each run, each terminated by a null byte."""
    with open(descriptor, "rb") as stream:
        fields = [os.fsdecode(field) for field in stream.read().split(b"\0")[:-1]]
    runs, start = [], 0
    while start < len(fields):
        end = start + 2 + int(fields[start + 1])
        runs.append(RunCommand(fields[start], fields[start + 2 : end]))
        start = end
    return runs
