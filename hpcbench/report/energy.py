"""The energy of runs beside what the scheduler says of their jobs."""

from collections.abc import Iterator

from hpcbench.collect.accounts import Account, accounts
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import printable
from hpcbench.report.compare import Cell
from hpcbench.report.resources import Energy

_MORE = 1.05
"""Times its job's energy that runs may have by their own counters: clocks and counters differ a little."""


def beside_the_scheduler(submission: Submission, cell: Cell) -> Iterator[str]:
    """What the scheduler counted of each job that runs of the cell were in, and what their own counters did."""
    if submission.root is None:
        return
    known = accounts(submission.root)
    jobs = dict.fromkeys(run.run.job for run in cell.runs if run.energy and run.run.job in known)
    for job in jobs:
        own = [run.energy for run in cell.runs if run.run.job == job and run.energy]
        yield _beside(str(job), known[str(job)], own)


def _beside(job: str, account: Account, own: list[Energy]) -> str:
    joules, seconds = sum(one.joules for one in own), sum(one.seconds for one in own)
    scope = " and ".join(sorted({one.scope for one in own}))
    per_second = f" ({account.joules / account.seconds:.4g} W)" if account.seconds else ""
    words = (
        f"{printable(job, 40)}: the scheduler counted {account.joules:.4g} J{per_second} for the job; in the steps that"
        f" count, its runs' counters {joules:.4g} J ({joules / seconds:.4g} W) of {scope}"
    )
    if joules > _MORE * account.joules:
        return f"{words}: a part cannot be more than the whole, so one of them is wrong or counts something else."
    return f"{words}."
