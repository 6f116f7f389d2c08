"""Traces of runs. Each rank writes one file, which `hpcbench.contract.trace` reads."""

from pathlib import Path

from hpcbench.collect.submission import RunResult
from hpcbench.contract import trace
from hpcbench.contract.trace import StepTrace


def directory_of(run: RunResult) -> Path | None:
    """Return the trace directory of a run, or None if the run was not traced."""
    directory = run.log.path.parent / trace.DIRECTORY if run.log else None
    return directory if directory is not None and directory.is_dir() else None


def traces_of(run: RunResult) -> list[StepTrace]:
    """Return the traces of the run's ranks, in rank order. The list is empty if the run was not traced.

    Raises
    ------
    UserError
        A file cannot be read, or is not a trace.
    """
    directory = directory_of(run)
    traces = [trace.read(path) for path in directory.glob(trace.name_file("*"))] if directory else []
    return sorted(traces, key=lambda rank_trace: rank_trace.rank)
