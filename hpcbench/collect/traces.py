"""The traces that runs left: a file a rank, which `hpcbench.contract.trace` reads."""

from pathlib import Path

from hpcbench.collect.submission import RunResult
from hpcbench.contract import trace
from hpcbench.contract.trace import StepTrace


def directory_of(run: RunResult) -> Path | None:
    """Where the run's trace lies; None where it has none."""
    found = run.log.path.parent / trace.DIRECTORY if run.log else None
    return found if found is not None and found.is_dir() else None


def traces_of(run: RunResult) -> list[StepTrace]:
    """The traces of the run's ranks, in rank order; none where it was not traced.

    Raises
    ------
    UserError
        A file cannot be read, or is no trace.
    """
    directory = directory_of(run)
    found = [trace.read(path) for path in directory.glob(trace.name_file("*"))] if directory else []
    return sorted(found, key=lambda one: one.rank)
