"""Changes between two submissions, by scheme, and differences between their settings.

The submissions ran at different times, perhaps on different nodes. Speeds are therefore compared as independent
samples (Welch's t-test). Losses of repeats with the same seed are compared pairwise, because both runs read the same
text in the same order. Other losses are compared as independent samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpcbench.contract.criteria import Criteria
from hpcbench.report.compare import Cell, SchemeRow, choose_common_rate
from hpcbench.report.findings import INCONCLUSIVE
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.pace import UNITS
from hpcbench.report.significance import holm
from hpcbench.report.statistics import Interval, Mean, estimate_mean, exponentiate, is_usable, welch

Word = Literal["up", "down", "same", "inconclusive"]
Fate = Literal["compared", "broken", "mended", "missing", "new", "never completed"]


@dataclass(frozen=True)
class Change:
    """Change of a scheme in a cell between two submissions."""

    cell: dict[str, Any]
    scheme: str
    old: SchemeRow | None
    new: SchemeRow | None
    fate: Fate
    speed: Mean | None = None
    """Difference of the logarithms of the speeds, new minus old."""
    loss: Mean | None = None
    """Difference in validation loss, new minus old."""
    loss_paired: bool = False
    """Whether the losses were paired by seed."""
    speed_word: Word = INCONCLUSIVE
    loss_word: Word = INCONCLUSIVE
    rate: int = 0
    """Index of the speed in `Rates`."""

    @property
    def unit(self) -> str:
        """Unit of the speeds."""
        return UNITS[self.rate]

    @property
    def old_speed(self) -> float | None:
        """Mean speed of the old runs."""
        return self.old.average_rate(self.rate) if self.old else None

    @property
    def new_speed(self) -> float | None:
        """Mean speed of the new runs."""
        return self.new.average_rate(self.rate) if self.new else None

    @property
    def speed_ratio(self) -> Interval | None:
        """New speed divided by old speed."""
        return exponentiate(self.speed.interval()) if self.speed else None

    @property
    def loss_difference(self) -> Interval | None:
        """New validation loss minus old validation loss."""
        return self.loss.interval() if self.loss else None

    @property
    def bad(self) -> bool:
        """Whether the scheme became slower, reaches a worse loss, fails, or is missing."""
        return self.fate in ("broken", "missing") or self.speed_word == "down" or self.loss_word == "up"

    @property
    def good(self) -> bool:
        """Whether the scheme became faster, reaches a better loss, or works again, and is not worse otherwise."""
        gained = self.fate == "mended" or self.speed_word == "up" or self.loss_word == "down"
        return gained and not self.bad

    @property
    def is_open(self) -> bool:
        """Whether a finding about the scheme is inconclusive."""
        return self.fate == "compared" and INCONCLUSIVE in (self.speed_word, self.loss_word)

    @property
    def verdict(self) -> str:
        """Description of the change."""
        if self.fate != "compared":
            return f"{self.fate}: {self.new.verdict}" if self.fate == "broken" and self.new else self.fate
        findings = {"speed": _SPEEDS.get(self.speed_word), "loss": _LOSSES.get(self.loss_word)}
        inconclusive = " and ".join(name for name, finding in findings.items() if not finding)
        order = ("loss", "speed") if self.loss_word == "up" else ("speed", "loss")
        decided = ", ".join(finding for name in order if (finding := findings[name]))
        return "; ".join(filter(None, (decided, f"{inconclusive} {INCONCLUSIVE}" if inconclusive else "")))


_SPEEDS: dict[Word, str] = {"up": "faster", "down": "slower", "same": "as fast"}
_LOSSES: dict[Word, str] = {"up": "loss worse", "down": "loss better", "same": "loss no worse"}


def list_changes(new: Sequence[Cell], old: Sequence[Cell], criteria: Criteria) -> list[Change]:
    """Compare two submissions. Schemes of the new submission come first, in their order.

    A change is significant if the hypothesis of no change is rejected. A change is ignored if it lies significantly
    within the margins of the new study (two one-sided tests). Both tests use a level of 5 % after Holm's correction
    over all schemes, speeds and losses.
    """
    before, after = _index_rows(old), _index_rows(new)
    rate = choose_common_rate((*before.values(), *after.values()))
    changes = [_compare(*key, before.get(key), row, rate) for key, row in after.items()]
    changes += [_compare(*key, row, None, rate) for key, row in before.items() if key not in after]
    margins = [(math.log1p(criteria.speed_margin), _compute_loss_margin(change, criteria)) for change in changes]
    tested = {
        (i, k): mean
        for i, change in enumerate(changes)
        for k, mean in enumerate((change.speed, change.loss))
        if mean and mean.error is not None
    }
    # The hypotheses "no change" and "a change beyond the margin" exclude each other.
    p = holm([(mean.p_two_sided(), mean.p_within(margins[i][k])) for (i, k), mean in tested.items()])
    findings = {key: _decide(mean, *both) for (key, mean), both in zip(tested.items(), p, strict=True)}
    return [
        replace(
            change,
            speed_word=findings.get((i, 0), INCONCLUSIVE),
            loss_word=findings.get((i, 1), INCONCLUSIVE),
        )
        for i, change in enumerate(changes)
    ]


def _index_rows(cells: Sequence[Cell]) -> dict[tuple[str, str], SchemeRow]:
    return {(repr(sorted(cell.values.items())), row.scheme): row for cell in cells for row in cell.rows}


def _compare(cell: str, scheme: str, old: SchemeRow | None, new: SchemeRow | None, rate: int) -> Change:
    row = new or old
    assert row is not None
    change = Change(row.runs[0].run.cell, scheme, old, new, _resolve_fate(old, new), rate=rate)
    if change.fate != "compared" or old is None or new is None:
        return change
    logs = [
        [math.log(value) for run in row.counted if (value := run.rates[rate]) and value > 0 and is_usable(value)]
        for row in (new, old)
    ]
    speed = welch(*logs) if all(logs) else None
    if pairs := _pair_by_seed(new, old):
        return replace(change, speed=speed, loss=estimate_mean([now - then for now, then in pairs]), loss_paired=True)
    losses = [list(_read_losses(row).values()) for row in (new, old)]
    return replace(change, speed=speed, loss=welch(*losses) if all(losses) else None)


def _resolve_fate(old: SchemeRow | None, new: SchemeRow | None) -> Fate:
    if old is None or new is None:
        return "new" if old is None else "missing"
    if _is_working(old) and _is_working(new):
        return "compared"
    if _is_working(old):
        return "broken"
    return "mended" if _is_working(new) else "never completed"


def _is_working(row: SchemeRow) -> bool:
    return bool(row.completed) and not row.diverged


def _read_losses(row: SchemeRow) -> dict[tuple[int | None, int | None], float]:
    """Return validation losses, keyed by repeat and seed."""
    return {
        (run.run.repeat, run.run.settings.train.seed): run.loss_valid
        for run in row.counted
        if run.loss_valid is not None and is_usable(run.loss_valid)
    }


def _pair_by_seed(new: SchemeRow, old: SchemeRow) -> list[tuple[float, float]]:
    """Return pairs of losses with the same seed in both submissions.

    The list is empty if any run has no counterpart.
    """
    after, before = _read_losses(new), _read_losses(old)
    if after.keys() != before.keys() or any(seed is None for _, seed in after):
        return []
    return [(after[key], before[key]) for key in after]


def _compute_loss_margin(change: Change, criteria: Criteria) -> float:
    base = change.old.loss_valid if change.old else None
    return criteria.loss_margin * abs(base or 0.0)


def _decide(mean: Mean, p_equal: float, p_beyond: float) -> Word:
    if p_beyond < LEVEL:
        return "same"
    if p_equal < LEVEL:
        return "up" if mean.estimate > 0 else "down"
    return INCONCLUSIVE


_COMPARED = ("model", "data", "train", "layout", "ranks", "threads", "device")


def list_differing_settings(new: Sequence[Cell], old: Sequence[Cell]) -> list[str]:
    """Return the differing settings of two submissions, such as ``train.steps 50, was 100``.

    Settings that vary within a submission are ignored.
    """
    after, before = _read_settings(new), _read_settings(old)
    return [
        f"{key} {_format_value(after.get(key))}, was {_format_value(before.get(key))}"
        for key in dict.fromkeys((*before, *after))
        if after.get(key) != before.get(key)
    ]


def _read_settings(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the settings that are the same in all runs, as a flat mapping."""
    common: dict[str, Any] | None = None
    for cell in cells:
        for run in cell.runs:
            if raw := run.run.settings.raw:
                flat = dict(_flatten({key: raw.get(key) for key in _COMPARED}))
                flat.pop("train.seed", None)
                common = flat if common is None else {k: v for k, v in common.items() if k in flat and flat[k] == v}
    return common or {}


def _flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [item for key, inner in value.items() for item in _flatten(inner, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _format_value(value: Any) -> str:
    # Twelve digits avoid output such as 0.00030000000000000003.
    return "not set" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
