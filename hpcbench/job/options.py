"""Options with which a job script starts the driver."""

import argparse
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
    signals: int
    """Descriptor from which the names of signals to the script are read."""
    result: int
    """Descriptor to which the exit status is written."""
    ended: int | None = None
    """Exit status of a script that ended without the driver. Then no run is started; the end is recorded."""
    walltime: int = 0
    """Seconds; 0 for no limit."""
    stop_ahead: int = 0
    """Seconds before the walltime at which runs are asked to stop."""
    run_limit: int = 0
    """Seconds per run; 0 for an equal part of the remaining walltime."""
    requeue: int = 0
    """Number of times that the job may go back into its queue."""
    easy: bool = False
    """Whether LSF allocates whole nodes, and counts a launch host with one slot among them."""
    host_file: tuple[str, int] | None = None
    """File that lists each host once per rank, and the number of ranks per host; None if no launcher reads one."""
    doctor: str = ""
    """The interpreter of the ranks, which the provenance describes; empty for one inside a container."""
    runs: tuple[RunCommand, ...] = ()


def parse_options(arguments: Sequence[str]) -> JobOptions:
    """Read the driver's command line: options, then ``--runs`` and for each run its id, n, and n words."""
    words = list(arguments)
    runs: list[str] = []
    if "--runs" in words:
        first = words.index("--runs")
        words, runs = words[:first], words[first + 1 :]
    parser = argparse.ArgumentParser(prog="python -m hpcbench.job", description="Started by job scripts.")
    parser.add_argument("--scheduler", required=True, choices=("slurm", "lsf", "flux", "local"))
    parser.add_argument("--job", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--pipes", required=True, type=int, nargs=2)
    for name in ("ended", "walltime", "stop-ahead", "run-limit", "requeue"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--easy", action="store_true")
    parser.add_argument("--host-file", nargs=2)
    parser.add_argument("--doctor")
    options = vars(parser.parse_args(words))
    signals, result = options.pop("pipes")
    if host_file := options.pop("host_file"):
        options["host_file"] = host_file[0], int(host_file[1])
    given = {name: value for name, value in options.items() if value is not None}
    return JobOptions(signals=signals, result=result, runs=tuple(_split_runs(runs)), **given)


def _split_runs(words: list[str]) -> list[RunCommand]:
    runs = []
    while words:
        end = 2 + int(words[1])
        runs.append(RunCommand(words[0], words[2:end]))
        words = words[end:]
    return runs
