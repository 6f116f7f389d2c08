"""Energy and duration of ended jobs, from the scheduler's accounting."""

from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.tracking.seen import load


@dataclass(frozen=True)
class JobEnergy:
    """Energy and duration of one job."""

    joules: float
    """Energy of the job in joules."""
    seconds: float | None
    """Duration of the job in seconds, or None if accounting does not report it."""


def accounts(root: Path) -> dict[str, JobEnergy]:
    """Return energy and duration of each job for which the scheduler reports energy (Slurm's ``ConsumedEnergyRaw``)."""
    accounts_by_job = {}
    for job, seen in load(root).items():
        joules = _number(seen.word.accounting.get("ConsumedEnergyRaw"))
        if joules:
            accounts_by_job[job] = JobEnergy(joules, _number(seen.word.accounting.get("ElapsedRaw")))
    return accounts_by_job


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and len(text) < 19 else None
