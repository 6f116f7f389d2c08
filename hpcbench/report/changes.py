"""The changes between two submissions, scheme by scheme, and the settings in which they differ.

They ran at different times, perhaps on other nodes. So their speeds are compared as independent samples (Welch). Their
losses are compared pair by pair if the repeats had equal seeds, because both then saw the same text in the same order,
and as independent samples otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpcbench.contract.criteria import Criteria
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.significance import holm
from hpcbench.report.statistics import Interval, Mean, mean_of, usable, welch

Word = Literal["up", "down", "same", "not shown"]
Fate = Literal["compared", "broken", "mended", "missing", "new", "never completed"]


@dataclass(frozen=True)
class Change:
    """A scheme of a cell, then and now."""

    cell: dict[str, Any]
    scheme: str
    old: SchemeRow | None
    new: SchemeRow | None
    fate: Fate
    speed: Mean | None = None
    """Logarithm of samples/s, new minus old."""
    loss: Mean | None = None
    """Validation loss, new minus old."""
    loss_paired: bool = False
    """Whether the losses were compared seed by seed."""
    speed_word: Word = "not shown"
    loss_word: Word = "not shown"

    @property
    def speed_ratio(self) -> Interval | None:
        """Samples/s, new over old."""
        return self.speed.interval().exp() if self.speed else None

    @property
    def loss_difference(self) -> Interval | None:
        """Validation loss, new minus old."""
        return self.loss.interval() if self.loss else None

    @property
    def bad(self) -> bool:
        """Whether something got slower or worse, broke, or is missing."""
        return self.fate in ("broken", "missing") or self.speed_word == "down" or self.loss_word == "up"

    @property
    def good(self) -> bool:
        """Whether something got faster or better, or works again, and nothing got worse."""
        gained = self.fate == "mended" or self.speed_word == "up" or self.loss_word == "down"
        return gained and not self.bad

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.fate != "compared":
            why = f": {self.new.verdict}" if self.fate == "broken" and self.new else ""
            return f"{self.fate}{why}"
        speed = {"up": "faster", "down": "slower", "same": "as fast", "not shown": ""}[self.speed_word]
        loss = {"up": "worse loss", "down": "better loss", "same": "equal loss", "not shown": ""}[self.loss_word]
        open_ = " and ".join(name for name, word in (("speed", speed), ("loss", loss)) if not word)
        known = ", ".join(filter(None, (loss, speed) if self.loss_word == "up" else (speed, loss)))
        return "; ".join(filter(None, (known, f"{open_} not shown" if open_ else "")))


def changes(new: Sequence[Cell], old: Sequence[Cell], criteria: Criteria) -> list[Change]:
    """Compare two submissions.

    A change is shown if the hypothesis of no change is rejected, unless the change is shown to lie within the margins
    (two one-sided tests) and so does not count. Both tests are at 5 % after Holm's correction over all schemes, speeds
    and losses.

    Parameters
    ----------
    new, old
        Cells of the two submissions, compared with their own baselines.
    criteria
        Margins of speed and loss, those of the new study.

    Returns
    -------
    list of Change
        The changes in the new submission's order. Schemes that only the old one has come last.
    """
    before, after = _rows(old), _rows(new)
    found = [_change(cell, scheme, before.get((cell, scheme)), row) for (cell, scheme), row in after.items()]
    found += [_change(cell, scheme, row, None) for (cell, scheme), row in before.items() if (cell, scheme) not in after]
    margins = [(math.log1p(criteria.speed_margin), _loss_margin(one, criteria)) for one in found]
    means = {(i, k): mean for i, one in enumerate(found) for k, mean in enumerate((one.speed, one.loss)) if mean}
    tested = {key: mean for key, mean in means.items() if mean.error is not None}
    # That there is no change, and that it exceeds the margin, cannot both be true.
    p = holm([(mean.p_two_sided(), mean.p_within(margins[i][k])) for (i, k), mean in tested.items()])
    words = {key: _word(mean, *both) for (key, mean), both in zip(tested.items(), p, strict=True)}
    return [
        replace(one, speed_word=words.get((i, 0), "not shown"), loss_word=words.get((i, 1), "not shown"))
        for i, one in enumerate(found)
    ]


def _rows(cells: Sequence[Cell]) -> dict[tuple[str, str], SchemeRow]:
    return {(repr(sorted(cell.values.items())), row.scheme): row for cell in cells for row in cell.rows}


def _change(cell: str, scheme: str, old: SchemeRow | None, new: SchemeRow | None) -> Change:
    some = new or old
    assert some is not None
    bare = Change(some.runs[0].run.cell, scheme, old, new, _fate(old, new))
    if bare.fate != "compared" or old is None or new is None:
        return bare
    logs = [
        [math.log(value) for run in row.counted if (value := run.samples_per_s) and value > 0 and usable(value)]
        for row in (new, old)
    ]
    speed = welch(*logs) if all(logs) else None
    pairs = _by_seed(new, old)
    if pairs:
        return replace(bare, speed=speed, loss=mean_of([now - then for now, then in pairs]), loss_paired=True)
    losses = [list(_losses(row).values()) for row in (new, old)]
    return replace(bare, speed=speed, loss=welch(*losses) if all(losses) else None)


def _fate(old: SchemeRow | None, new: SchemeRow | None) -> Fate:
    if old is None or new is None:
        return "new" if old is None else "missing"
    if _works(old) and _works(new):
        return "compared"
    if _works(old):
        return "broken"
    return "mended" if _works(new) else "never completed"


def _works(row: SchemeRow) -> bool:
    return bool(row.completed) and not row.diverged


def _losses(row: SchemeRow) -> dict[tuple[int | None, int | None], float]:
    """Return the validation loss by repeat and seed."""
    return {
        (run.run.repeat, run.run.settings.train.seed): run.loss_valid
        for run in row.counted
        if run.loss_valid is not None and usable(run.loss_valid)
    }


def _by_seed(new: SchemeRow, old: SchemeRow) -> list[tuple[float, float]]:
    """Losses of runs that had the same seed in both submissions; none if any run lacks its partner."""
    after, before = _losses(new), _losses(old)
    if after.keys() != before.keys() or any(seed is None for _, seed in after):
        return []
    return [(after[key], before[key]) for key in after]


def _loss_margin(change: Change, criteria: Criteria) -> float:
    base = change.old.loss_valid if change.old else None
    return criteria.loss_margin * abs(base or 0.0)


def _word(mean: Mean, unlike: float, within: float) -> Word:
    if within < LEVEL:
        return "same"
    if unlike < LEVEL:
        return "up" if mean.estimate > 0 else "down"
    return "not shown"


_COMPARED = ("model", "data", "train", "layout", "ranks", "threads", "device")


def differing_settings(new: Sequence[Cell], old: Sequence[Cell]) -> list[str]:
    """Return the settings of the runs in which the two submissions differ, such as ``train.steps 50, was 100``.

    Settings that vary within one of them do not count.
    """
    after, before = _settings(new), _settings(old)
    return [
        f"{key} {_shown(after.get(key))}, was {_shown(before.get(key))}"
        for key in dict.fromkeys((*before, *after))
        if after.get(key) != before.get(key)
    ]


def _settings(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the settings that all runs share, as one flat mapping."""
    common: dict[str, Any] | None = None
    for cell in cells:
        for run in cell.runs:
            if raw := run.run.settings.raw:
                flat = dict(_flat({key: raw.get(key) for key in _COMPARED}))
                flat.pop("train.seed", None)
                common = flat if common is None else {k: v for k, v in common.items() if k in flat and flat[k] == v}
    return common or {}


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [item for key, inner in value.items() for item in _flat(inner, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _shown(value: Any) -> str:
    # Twelve digits: a product of what the study says is not 0.00030000000000000003 to anybody.
    return "not set" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
