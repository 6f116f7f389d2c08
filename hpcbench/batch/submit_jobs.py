"""Parcels into the hands of a scheduler, so that none is lost and none handed in twice, whoever dies in between."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.files import seconds
from hpcbench.batch.schedulers.scheduler import Receipt, Scheduler, UnclearError
from hpcbench.batch.tracking.ledger import Handed, Ledger
from hpcbench.batch.tracking.marks import attempts_begun, read_mark
from hpcbench.errors import UserError

_AGAIN = 2.0
"""Seconds between two looks for a parcel whose answer nobody has heard."""
_LOOKS = (0.5, 2.0, 5.0)
"""Seconds before each look for a parcel whose submission was unclear: what is too busy to answer is slow to list."""


@dataclass(frozen=True)
class Order:
    """A parcel to hand in."""

    label: str
    script: str
    """Relative to the submission."""
    jobs: Sequence[str]
    array: bool = False


def deliver(
    root: Path,
    scheduler: Scheduler,
    ledger: Ledger,
    orders: Sequence[Order],
    *,
    name: str,
    after: Sequence[str] = (),
    after_any: bool = False,
    said: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Hand in the orders; returns the scheduler's line for the user.

    Parameters
    ----------
    name
        Begins the names of the parcels; unique among all submissions.
    after
        Ids of what must have ended before.
    said
        Called after each answer.

    Raises
    ------
    UserError
        The scheduler refused one of them, or its answer does not say whether it took it. Those before it are handed in;
        the same command again goes on from there.
    """
    for done, order in enumerate(orders):
        begun = {job: attempts_begun(root, job) for job in order.jobs}
        again = ledger.times(order.jobs[0])
        full = f"{name}-{order.label}" + (f".{again + 1}" if again else "")
        handed = ledger.open(
            full, order.script, order.jobs, begun, array=order.array, after=list(after), after_any=after_any
        )
        try:
            _one(root, scheduler, ledger, handed, sleep)
        except UserError as error:
            scheduler.begin()
            where = f" ({done} of {len(orders)} are handed in; the same command again goes on)" if done else ""
            raise UserError(f"{error}{where}") from None
        said()
    return scheduler.begin()


def _one(root: Path, scheduler: Scheduler, ledger: Ledger, handed: Handed, sleep: Callable[[float], None]) -> None:
    try:
        ledger.close(handed, scheduler.submit(handed.parcel(root)))
    except UnclearError as error:
        for pause in _LOOKS:
            sleep(pause)
            found = scheduler.find(handed.name, len(handed.jobs))
            if found is not None:
                ledger.close(handed, found)
                return
        raise UserError(
            f"{error}: the queue shows no {handed.name} so far: look at it, then give the same command again"
        ) from None
    except UserError:
        ledger.drop(handed)
        raise


def settle(scheduler: Scheduler, ledger: Ledger, *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Find out what became of parcels whose answer is missing; returns how many the scheduler has taken.

    What was handed in a moment ago may be listed later: whoever was killed may have left a call on its way.

    Raises
    ------
    UserError
        The scheduler cannot be asked.
    """
    taken = 0
    for handed in [parcel for parcel in ledger.parcels if parcel.id is None]:
        age = max(0.0, time.time() - (seconds(handed.time) or 0.0))
        found = _look(scheduler, ledger, handed)
        while found is None and age < scheduler.slowest:
            sleep(_AGAIN)
            age += _AGAIN
            found = _look(scheduler, ledger, handed)
        if found is None:
            ledger.drop(handed)
        else:
            ledger.close(handed, found)
            taken += 1
    return taken


def _look(scheduler: Scheduler, ledger: Ledger, handed: Handed) -> Receipt | None:
    """What the scheduler knows of the parcel; what it has forgotten since, the marks of its jobs may tell."""
    return scheduler.find(handed.name, len(handed.jobs)) or _by_marks(ledger.root, handed)


def _by_marks(root: Path, handed: Handed) -> Receipt | None:
    for job in handed.jobs:
        mark = read_mark(root / "jobs" / job)
        if mark is None or not mark.id or mark.attempt <= handed.begun[job]:
            continue
        if not handed.array:
            return Receipt(mark.id, [mark.id])
        element = re.fullmatch(r"(\d+)(\D+)\d+(\D*)", mark.id)  # 123_4, 123[4]
        if element is not None:
            number, before, behind = element.groups()
            return Receipt(number, [f"{number}{before}{k + 1}{behind}" for k in range(len(handed.jobs))])
    return None
