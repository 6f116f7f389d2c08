"""Rounds on a site: submission of runs, waiting, and reading of times and losses."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.find_submission import list_submissions
from hpcbench.batch.resume import left
from hpcbench.batch.retry import retry
from hpcbench.batch.submit import Options, submit
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import load
from hpcbench.contract.state import State
from hpcbench.contract.submission import read_submission
from hpcbench.predict.memory_check import check_memory
from hpcbench.report.live import follow
from hpcbench.report.measures import Measures, measure
from hpcbench.study.schema import SchemeEntry
from hpcbench.tune.standings import RunOutcome

RETRIES = 2
"""Maximum number of resubmissions of runs that ended for external reasons."""
_EXTERNAL = (State.NODE_FAILED, State.PREEMPTED, State.LOST, State.STOPPED)


@dataclass(frozen=True)
class RoundResult:
    """Outcomes and cost of a round."""

    outcomes: Mapping[str, RunOutcome]
    node_hours: float


def list_sets(
    names: Sequence[str], schemes: Mapping[str, SchemeEntry], *, seed_key: str | None, seed: int, sets: Sequence[str]
) -> list[str]:
    """Return the ``--set`` options of a round: schemes, one repeat, and seed.

    Parameters
    ----------
    names
        Schemes of the round, starting with the baseline.
    schemes
        Definitions of schemes that are not in the study.
    seed_key
        Key of the seed in the study, or None for a program without a seed.
    seed
        Seed of the round.
    sets
        User options.
    """
    options = [*sets, f"matrix.scheme={json.dumps(list(names))}", "repeats=1"]
    if seed_key is not None:
        options.append(f"{seed_key}={seed}")
    for name in names:
        if name in schemes:
            options.append(f"schemes.{name}={schemes[name].model_dump_json(exclude_defaults=True)}")
    return options


def submit_once(study: Path, site: str | None, sets: Sequence[str], base: Path) -> Path:
    """Submit a round, unless it is already submitted, and return the submission.

    An interrupted submission is continued.
    """
    if base.is_dir():
        for root in list_submissions(base):
            ledger = Ledger(root)
            if not left(read_submission(root), ledger) and all(job.id is not None for job in ledger.submitted):
                return root
    return submit(study, Options(site=site, out=base, sets=list(sets)), check=check_memory).root


def run_round(
    study: Path,
    site: str | None,
    sets: Sequence[str],
    base: Path,
    *,
    nodes: int,
    wait: Callable[[Path], object] = follow,
) -> RoundResult | None:
    """Run a round to completion. Return None if the user stopped watching before the jobs ended.

    Parameters
    ----------
    study, site, sets
        The study, the site and all ``--set`` options.
    base
        Directory of the round's submission.
    nodes
        Number of nodes per run.
    wait
        Function that blocks until the jobs of a submission have ended.
    """
    root = submit_once(study, site, sets, base)
    tracked = track(root)
    for attempt in range(RETRIES + 1):
        if not tracked.over:
            wait(root)
            tracked = track(root)
        if not tracked.over:
            return None
        if attempt < RETRIES and _has_external_end(tracked):
            retry(root)
            tracked = track(root)
        else:
            break
    return read_round(root, nodes)


def _has_external_end(tracked: Tracked) -> bool:
    return any(status.state in _EXTERNAL for status in tracked.runs.values())


def read_round(root: Path, nodes: int) -> RoundResult:
    """Read the times and losses of a round's runs."""
    runs = load(root, jobs_of(root)).runs
    outcomes = {run.scheme: read_outcome(measure(run)) for run in runs}
    return RoundResult(outcomes, sum((run.seconds or 0.0) for run in runs) * nodes / 3600)


def read_outcome(measures: Measures) -> RunOutcome:
    """Return the outcome of a run: its loss and its time per unit of work, or nothing if the run did not complete."""
    if measures.run.state is not State.COMPLETED:
        return RunOutcome(None, None)
    rate = next((rate for rate in measures.rates if rate), None)
    loss = measures.loss_train if measures.loss_valid is None else measures.loss_valid
    return RunOutcome(1 / rate if rate else None, loss)
