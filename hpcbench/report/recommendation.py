"""Recommendation for a cell: the scheme to try first, with savings in time and node-hours."""

from hpcbench.present.notation import Interval, bounds
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.front import Front, compute_front, find_simplest, is_good
from hpcbench.report.kinds import SchemeKind

STEPS = 1000
"""Number of steps of the job that savings are computed for."""
_HOUR = 3600.0
_UNITS = ((2 * _HOUR, _HOUR, "h"), (120.0, 60.0, "min"))
"""Minimum time shown in each unit, size of the unit, and unit name. Shorter times are shown in seconds."""


def list_plain(cell: Cell) -> list[str]:
    """Return the controls with the same algorithm as the schemes but without a codec."""
    return [row.scheme for row in cell.rows if row.compared and row.kind is SchemeKind.PLAIN]


def is_paying_by_codec(row: SchemeRow, pareto: Front, plain: list[str]) -> bool:
    """Return whether a scheme is significantly faster than all controls with the same algorithm but without a codec."""
    if row.runs[0].run.settings.scheme.process_changes:
        return True  # another system compresses within the baseline's algorithm
    duels = [pareto.gain(row.scheme, control) for control in plain]
    return all(duel is not None and duel.faster for duel in duels)


def find_recommended(cell: Cell) -> SchemeRow | None:
    """Return the recommended scheme, or None if no scheme pays significantly.

    Candidates must pay, and must be among the simplest schemes on the Pareto front. If none of the simplest
    schemes pays, all schemes that pay are candidates. The fastest candidate is recommended.
    """
    pareto, plain = compute_front(cell), list_plain(cell)
    compared = [row for row in cell.rows if is_good(row) and row.compared and not row.idle and not row.kind.is_control]
    good = [row for row in compared if is_paying_by_codec(row, pareto, plain)]
    simplest = find_simplest(cell, pareto)
    candidates = [row for row in good if row.scheme in simplest] or good
    return max(candidates, key=lambda row: row.speed.estimate if row.speed else 0.0, default=None)


def recommend(cell: Cell) -> list[str]:
    """Return a list with one text about the recommended scheme's job time.

    The list is empty if no scheme is recommended or if a step time is missing.
    """
    row, base = find_recommended(cell), cell.row(cell.baseline)
    if row is None or row.speed is None or base is None or base.step_seconds is None:
        return []
    before = STEPS * base.step_seconds.estimate
    # Ratios are computed within pairs of runs, so differences between allocations cancel.
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
    """Return the number of nodes of a scheme's runs, or 0 if unknown or different between runs."""
    counts = {len({rank.host for rank in run.run.log.ranks if rank.host}) for run in row.counted if run.run.log}
    return counts.pop() if len(counts) == 1 else 0


def _show(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
