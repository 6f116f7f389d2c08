"""What the scheduler's accounting says of jobs that have ended, as it was last asked."""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.tracking.seen import load


@dataclass(frozen=True)
class Account:
    """What the scheduler's accounting says of one job."""

    joules: float
    seconds: float | None
    """That it ran."""


def accounts(root: Path) -> dict[str, Account]:
    """The energy of each job of a submission whose scheduler counts any (Slurm's ``ConsumedEnergyRaw``)."""
    found = {}
    for job, seen in load(root).items():
        joules = _number(seen.word.accounting.get("ConsumedEnergyRaw"))
        if joules:
            found[job] = Account(joules, _number(seen.word.accounting.get("ElapsedRaw")))
    return found


def _number(words: str | None) -> float | None:
    return float(words) if words is not None and words.isdecimal() and len(words) < 19 else None
