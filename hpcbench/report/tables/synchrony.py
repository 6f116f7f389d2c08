"""Ways to keep ranks in step: time to the loss of the one in which all wait, what is waited, how old weights are."""

from collections.abc import Iterator, Sequence

from hpcbench.collect.submission import Submission
from hpcbench.report.columns import SCHEME
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.report.notation import (
    between,
    estimate,
    loss_interval,
    name,
    percent,
    quantity,
    seconds_unit,
    speed_interval,
)
from hpcbench.report.notation import loss as loss_digits
from hpcbench.report.quantities import fields
from hpcbench.report.quantities.staleness_quantities import STALENESS_MEAN, STALENESS_MOST, WAITING
from hpcbench.report.synchrony import Arm, arms

_MOST = 8
"""Ages that are told one by one; older weights are told together."""
_TONES: dict[str, Tone] = {"not reached": "bad", "reached in part": "warning", "unknown": "warning"}


def synchrony(submission: Submission, cells: list[Cell]) -> Table | None:
    """A row for each way and scheme; None where every run waits for all others."""
    margin = submission.plan.criteria.loss_margin
    found = arms(cells, margin)
    unit = seconds_unit(arm.seconds for arm in found)
    several = len({arm.group for arm in found}) > 1
    made: list[Field[Arm]] = [
        (
            Column("way", "in step by", words=True, help="The schedule of a pipeline, or how replicas keep in step."),
            lambda arm: name(arm.way.words),
        ),
        (SCHEME, lambda arm: name(arm.scheme)),
        (
            Column("group", "of", words=True, help="Values of the matrix that the compared ways have in common."),
            lambda arm: name(arm.group if several else ""),
        ),
        (
            Column("time_to_loss_ratio", "time to loss, vs reference (95 % CI)", help=_help("Seconds to the loss")),
            _ratio,
        ),
        (Column("reached", "reached", words=True, help="Pairs in which the loss was reached."), _reached),
        (
            Column("time_to_loss_s", f"time ({unit.name})", help="Seconds in steps of the runs that reached the loss."),
            lambda arm: quantity(arm.seconds, unit.show),
        ),
        (
            Column("target_loss", "loss to reach", help="The reference's last loss and the margin, a mean."),
            lambda arm: quantity(arm.target, loss_digits),
        ),
        (
            Column(
                "loss_to_reference", "loss vs reference (95 % CI)", group=1, help=_help("Validation loss at the end")
            ),
            lambda arm: estimate(arm.loss, loss_interval),
        ),
        *fields([WAITING], found, lambda one, arm: arm.waiting),
        (
            Column("waiting_change", "vs reference (95 % CI)", group=2, help=_help("The part waited")),
            lambda arm: estimate(arm.waiting_change, lambda change: between(change, _points)),
        ),
        *fields([STALENESS_MEAN, STALENESS_MOST], found, lambda one, arm: one.over(arm.runs)),
    ]
    title = "Ways to keep in step: time to a loss, waiting, staleness"
    return tabulate("synchrony", title, found, made, notes=[*_rule(found, margin), *_ages(found)], always=3)


def _help(what: str) -> str:
    return f"{what}, beside the reference's run of the same scheme and seed, with its interval."


def _points(part: float) -> str:
    return f"{100 * part:+.1f} %"


def _ratio(arm: Arm) -> Entry:
    if arm.against and arm.state in ("not reached", "unknown"):
        return Entry(arm.state, None, _TONES[arm.state])
    return estimate(arm.time_ratio, speed_interval)


def _reached(arm: Arm) -> Entry:
    if arm.is_reference:
        return name("reference")
    return Entry(f"{arm.reached} of {arm.pairs}", arm.state, _TONES.get(arm.state, ""))


def _rule(found: Sequence[Arm], margin: float) -> Iterator[str]:
    references = dict.fromkeys(arm.against for arm in found if arm.against)
    if not references:
        return
    bases = {arm.basis for arm in found if arm.times}
    loss = "training loss (mean of the last steps)" if bases == {"training"} else "validation loss"
    yield (
        f"Reference: {' and '.join(references)}, in which all wait. The loss to reach is its last {loss} plus "
        f"{percent(margin)}, run by run of the same seed; below 1 is faster. Evaluations take no time."
    )
    if any(arm.state == "reached in part" for arm in found):
        yield "Where not all pairs reached the loss, the ratio is of those that did, and flatters the way."


def _ages(found: Sequence[Arm]) -> Iterator[str]:
    """Histograms of staleness."""
    for arm in found:
        if not arm.ages:
            continue
        own = arm.parts
        told = [f"{age}: {percent(part)}" for age, part in list(own.items())[:_MOST]]
        rest = list(own.items())[_MOST:]
        if rest:
            told.append(f"{rest[0][0]} to {rest[-1][0]}: {percent(sum(part for _, part in rest))}")
        who = ", ".join(name(words).shown for words in (arm.way.words, arm.group, arm.scheme) if words)
        yield f"{who}: gradients by staleness: {', '.join(told)}."
