"""The recommendation of a cell: which scheme to take first, and what it saves in time and node-hours."""

from hpcbench.present.notation import Interval, bounds
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.front import Front, compute_front, find_simplest, is_good
from hpcbench.report.kinds import SchemeKind

STEPS = 1000
"""Number of steps of the job for which times are computed."""
_HOUR = 3600.0
_UNITS = ((2 * _HOUR, _HOUR, "h"), (120.0, 60.0, "min"))
"""Shortest time shown in each unit, size of the unit, and its name. Shorter times are shown in seconds."""


def list_plain(cell: Cell) -> list[str]:
    """Return the controls that have the algorithm of the schemes and no codec."""
    return [row.scheme for row in cell.rows if row.compared and row.kind is SchemeKind.PLAIN]


def is_paying_by_codec(row: SchemeRow, pareto: Front, plain: list[str]) -> bool:
    """Return whether the scheme is significantly faster than all controls with its algorithm and without a codec."""
    if row.runs[0].run.settings.scheme.process_changes:
        return True  # another system compresses within the algorithm that the baseline has
    duels = [pareto.gain(row.scheme, control) for control in plain]
    return all(duel is not None and duel.faster for duel in duels)


def find_recommended(cell: Cell) -> SchemeRow | None:
    """Return the scheme to take first; None if no scheme significantly pays.

    It is the simplest one that no other scheme significantly beats. If that is the baseline or a control, or if there
    are several, it is the fastest.
    """
    pareto, plain = compute_front(cell), list_plain(cell)
    compared = [row for row in cell.rows if is_good(row) and row.compared and not row.idle and not row.kind.is_control]
    good = [row for row in compared if is_paying_by_codec(row, pareto, plain)]
    simplest = find_simplest(cell, pareto)
    candidates = [row for row in good if row.scheme in simplest] or good
    return max(candidates, key=lambda row: row.speed.estimate if row.speed else 0.0, default=None)


def recommend(cell: Cell) -> list[str]:
    """Return the sentence about the time of a job with the recommended scheme; none without a scheme or a step time."""
    row, base = find_recommended(cell), cell.row(cell.baseline)
    if row is None or row.speed is None or base is None or base.step_seconds is None:
        return []
    before = STEPS * base.step_seconds.estimate
    # Ratios are of pairs of runs, so that differences between allocations cancel.
    after = Interval(
        before / row.speed.estimate,
        before / row.speed.high if row.speed.high else None,
        before / row.speed.low if row.speed.low else None,
        row.speed.pairs,
    )
    scale, unit = next(((scale, unit) for least, scale, unit in _UNITS if before >= least), (1.0, "s"))
    nodes = count_nodes(base)
    hours = say.NODE_HOURS.format(hours=_show(nodes * after.estimate / _HOUR), base=_show(nodes * before / _HOUR))
    return [
        say.RECOMMENDED.format(
            scheme=row.scheme,
            steps=STEPS,
            nodes=f" on {nodes} nodes" if nodes > 1 else "",
            time=f"{_show(after.estimate / scale)} {unit}",
            interval=bounds(after, lambda seconds: _show(seconds / scale)),
            base=f"{_show(before / scale)} {unit}",
            hours=hours if nodes else "",
        )
    ]


def count_nodes(row: SchemeRow) -> int:
    """Return the number of nodes of a scheme's runs; 0 if it is not known or differs."""
    counts = {len({rank.host for rank in run.run.log.ranks if rank.host}) for run in row.counted if run.run.log}
    return counts.pop() if len(counts) == 1 else 0


def _show(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
