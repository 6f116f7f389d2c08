"""Detection of identical schemes: their rules differ only for traffic that does not occur in a cell."""

from collections.abc import Hashable, Sequence

from pydantic import ValidationError

from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.text import make_printable
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import Measures


def find_identical(cell: Cell) -> list[list[str]]:
    """Return groups of schemes that differ only in names and in rules that match no traffic.

    Schemes whose losses differ by more than the margin are not considered identical, regardless of their rules.
    """
    groups: dict[Hashable, list[SchemeRow]] = {}
    for row in cell.rows:
        treatments = {_describe_treatment(run) for run in row.counted}
        if len(treatments) == 1 and (treatment := treatments.pop()) is not None:
            groups.setdefault(treatment, []).append(row)
    return [
        [row.scheme for row in rows]
        for rows in groups.values()
        if len(rows) > 1 and _are_close([row.loss_valid for row in rows], cell.criteria.loss_margin)
    ]


def _are_close(losses: Sequence[float | None], margin: float) -> bool:
    finite = [loss for loss in losses if loss is not None]
    return not finite or max(finite) - min(finite) <= margin * abs(min(finite))


def describe_identical(cell: Cell) -> list[str]:
    """Return one sentence per group of identical schemes."""
    return [
        f"{', '.join(map(make_printable, schemes))} are identical in these runs, because they treat all traffic "
        "in the same way: differences between them are due to chance"
        for schemes in find_identical(cell)
    ]


def _describe_treatment(run: Measures) -> Hashable:
    """Return all scheme settings that can affect the run, or None if unknown."""
    channels = [channel for channel in run.channels if channel.dimension != "EXACT"]
    try:
        scheme = NamedScheme.model_validate(run.run.settings.scheme.raw)
    except ValidationError:
        return None
    if not channels or any(channel.phase is None or channel.kind is None for channel in channels):
        return None
    optimizer = scheme.optimizer or run.run.settings.train.optimizer
    treatments = {channel.key: tuple(scheme.schedule(channel.key, half=True).items()) for channel in channels}
    return optimizer, scheme.process_changes, frozenset(treatments.items())
