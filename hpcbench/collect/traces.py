"""Traces of runs. Each rank writes one file, which `hpcbench.contract.trace` reads."""

from hpcbench.collect.submission import RunResult
from hpcbench.contract import trace
from hpcbench.contract.trace import StepTrace


def traces_of(run: RunResult) -> list[StepTrace]:
    """Return the traces of the run's ranks, in rank order. The list is empty if the run was not traced.

    Raises
    ------
    UserError
        A file cannot be read, or is not a trace.
    """
    if run.log is None:
        return []
    directory = run.log.path.parent / trace.DIRECTORY
    traces = [trace.read(path) for path in directory.glob(trace.name_file("*"))]
    return sorted(traces, key=lambda rank_trace: rank_trace.rank)
