"""Comparison of sync modes with a synchronous reference: time to a loss, bubble and staleness.

The sync mode is the pipeline schedule or the synchronization method of replicas. Compared cells differ only in the sync
mode. The reference is a synchronous mode. Runs of the same scheme and pairing, with the same seed, are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from hpcbench.collect.submission import Submission
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.training import UNFLUSHED
from hpcbench.present.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.present.notation import (
    between,
    estimate,
    loss_interval,
    name,
    percent,
    quantity,
    seconds_unit,
    speed_interval,
)
from hpcbench.present.notation import loss as loss_digits
from hpcbench.report.columns import SCHEME
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.evidence import pair_runs
from hpcbench.report.measures import Measures, select_completed
from hpcbench.report.quantities import Value, make_fields
from hpcbench.report.quantities.staleness import STALENESS_MEAN, STALENESS_MOST, WAITING, Ages, add_ages, describe_ages
from hpcbench.report.statistics import Interval, is_usable, paired_difference, paired_ratio
from hpcbench.report.time_to_loss import Basis, TimeToLoss, compare_times_to_loss
from hpcbench.report.titles import find_example, write_settings

_SAME = ("model", "data", "train", "layout", "device", "ranks", "shape")
"""Settings of the work, layout and links, which are the same in compared runs."""
_OF_THE_WAY: dict[str, tuple[str, ...]] = {
    "train": ("schedule", "vertical_sync", "sync", "staleness", "seed"),
    "layout": ("chunks", "stages"),
}
"""Settings that may differ between compared runs.

All of them define the sync mode, except the seed, which differs between repeats.
"""
_REFERENCES = ("1f1b", "gpipe", "interleaved", "all-reduce")
"""Synchronous modes. The reference is the first of these modes that has runs."""

Reached = Literal["reached", "reached in part", "not reached", "unknown", "reference"]


@dataclass(frozen=True)
class SyncMode:
    """Synchronization mode of a run: the pipeline schedule or the parameter server mode."""

    name: str
    waits: bool
    """Whether gradients are always computed with the newest weights."""


@dataclass(frozen=True)
class Arm:
    """Runs of a sync mode and scheme, compared with the reference. Numbers that no run provides are None."""

    group: str
    """Matrix values that distinguish the compared cells from other cells.

    The text is empty if there are no other cells.
    """
    way: SyncMode
    scheme: str
    against: str | None
    """Sync mode of the reference, or None for the reference itself or if no reference exists."""
    is_reference: bool
    runs: tuple[Measures, ...]
    times: tuple[TimeToLoss, ...]
    """Times to the reference's final loss, for each pair with known times."""
    pairs: int
    """Number of pairs with known times or with a diverged run. A diverged run counts as not having reached the loss."""
    time_ratio: Interval | None
    """Time until the loss is reached divided by the reference's time, over the pairs that reached the loss."""
    loss: Interval | None
    """Difference from the reference's validation loss at the last step."""
    waiting: float | None
    """Fraction of the time that ranks spend waiting (see `hpcbench.report.quantities.staleness`)."""
    waiting_change: Interval | None
    """Difference from the reference's waiting fraction."""
    ages: Ages | None
    """Staleness of the gradients of all completed runs, or None if unknown."""

    @property
    def run_names(self) -> list[str]:
        """Names of the runs."""
        return [run.run.id for run in self.runs]

    @property
    def reached(self) -> int:
        """Number of pairs that reached the loss."""
        return sum(time.mine is not None for time in self.times)

    @property
    def state(self) -> Reached:
        """Whether the runs reached the reference's loss."""
        if self.is_reference:
            return "reference"
        if not self.pairs:
            return "unknown"
        return "reached" if self.reached == self.pairs else "reached in part" if self.reached else "not reached"

    @property
    def target(self) -> float | None:
        """Mean target loss."""
        return fmean(time.target for time in self.times) if self.times else None

    @property
    def basis(self) -> Basis | None:
        """Kind of loss used in all pairs, or None if pairs differ."""
        bases = {time.basis for time in self.times}
        return bases.pop() if len(bases) == 1 else None

    @property
    def seconds(self) -> float | None:
        """Mean time in seconds until the loss was reached, over the runs that reached it."""
        times = [time.mine for time in self.times if time.mine is not None]
        return fmean(times) if times else None

    @property
    def parts(self) -> dict[int, float]:
        """Fraction of all gradients for each staleness. The dictionary is empty if the staleness is unknown."""
        if self.ages is not None:
            return self.ages.parts
        return {0: 1.0} if self.way.waits else {}


def resolve_mode(settings: LoggedSettings) -> SyncMode | None:
    """Return the sync mode of a run, or None if the settings do not contain it."""
    train, layout = settings.train, settings.layout
    if layout.pp is None or train.schedule is None or train.sync is None:
        return None
    if layout.pp > 1:
        more = ", vertical sync" if train.vertical_sync else f" x {layout.chunks}" if layout.chunks > 1 else ""
        return SyncMode(f"{train.schedule}{more}", train.schedule not in UNFLUSHED)
    mode = f"ssp({train.staleness or 0})" if train.sync == "ssp" else train.sync
    return SyncMode(mode, train.sync in ("all-reduce", "bsp"))


def list_arms(cells: Sequence[Cell], margin: float) -> list[Arm]:
    """Compare the sync modes with their references. The result is empty if all runs are synchronous.

    `margin` is the relative increase over the reference's final loss that is still acceptable.
    """
    groups: dict[str, list[tuple[SyncMode, Cell]]] = {}
    for cell in cells:
        settings = find_example(cell).settings
        if (way := resolve_mode(settings)) is not None:
            groups.setdefault(write_settings(settings, _SAME, _OF_THE_WAY), []).append((way, cell))
    asked = [group for group in groups.values() if any(_is_asked(find_example(cell).settings) for _, cell in group)]
    return [
        arm
        for group in asked
        for arm in _list_arms_of_group(group, [cell for group in asked for _, cell in group], margin)
    ]


def _is_asked(settings: LoggedSettings) -> bool:
    """Return whether a run uses an asynchronous schedule or a non-default synchronization method."""
    return settings.train.schedule in UNFLUSHED or settings.train.sync != "all-reduce"


def _list_arms_of_group(group: Sequence[tuple[SyncMode, Cell]], cells: Sequence[Cell], margin: float) -> Iterator[Arm]:
    waiting = [(way, cell) for name in _REFERENCES for way, cell in group if way.name.split(" x ")[0] == name]
    reference = waiting[0] if waiting else None
    shared = _describe_shared_values([cell for _, cell in group], cells)
    for way, cell in group:
        is_reference = reference is not None and cell is reference[1]
        for row in cell.rows:
            base = reference[1].row(row.scheme) if reference is not None and not is_reference else None
            yield _make_arm(
                shared, way, row, base, reference[0] if base and reference else None, margin, is_reference=is_reference
            )


def _describe_shared_values(group: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Describe the matrix values common to a group's cells but not to all cells of the submission."""
    ways = {f"{section}.{name}" for section, names in _OF_THE_WAY.items() for name in names}
    first = {key: value for key, value in group[0].values.items() if key not in ways}
    common = {key: value for key, value in first.items() if all(cell.values.get(key) == value for cell in group)}
    apart = {key for key, value in common.items() if any(cell.values.get(key) != value for cell in cells)}
    return ", ".join(f"{key.rpartition('.')[2]} {common[key]}" for key in common if key in apart)


def _make_arm(
    group: str,
    way: SyncMode,
    row: SchemeRow,
    other: SchemeRow | None,
    against: SyncMode | None,
    margin: float,
    *,
    is_reference: bool,
) -> Arm:
    runs, base = row.runs, other.runs if other else ()
    both = pair_runs(runs, base)
    lost = {run.run.pairing for run in runs if run.run.state == "nan"} & {run.run.pairing for run in base}
    times = [time for mine, other in both if (time := compare_times_to_loss(mine.run.log, other.run.log, margin))]
    pairs = [(time.mine, time.other) for time in times if time.mine]
    return Arm(
        group=group,
        way=way,
        scheme=row.scheme,
        against=against.name if against else None,
        is_reference=is_reference,
        runs=runs,
        times=tuple(times),
        pairs=len(times) + len(lost),
        time_ratio=paired_ratio(*zip(*pairs, strict=True)) if pairs and all(b > 0 for _, b in pairs) else None,
        loss=_compute_difference(both, lambda run: run.loss_valid),
        waiting=WAITING.average_or_none(runs),
        waiting_change=_compute_difference(both, WAITING.compute),
        ages=add_ages(select_completed(runs)),
    )


def _compute_difference(both: Sequence[tuple[Measures, Measures]], of: Callable[[Measures], Value]) -> Interval | None:
    values = [(of(mine), of(other)) for mine, other in both]
    pairs = [
        (a, b) for a, b in values if isinstance(a, float) and isinstance(b, float) and is_usable(a) and is_usable(b)
    ]
    return paired_difference([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None


_TONES: dict[str, Tone] = {"not reached": "bad", "reached in part": "warning", "unknown": "warning"}


def tabulate_synchrony(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the table with one row per sync mode and scheme, or return None if all runs are synchronous."""
    margin = submission.plan.criteria.loss_margin
    modes = list_arms(cells, margin)
    unit = seconds_unit(arm.seconds for arm in modes)
    several = len({arm.group for arm in modes}) > 1
    fields: list[Field[Arm]] = [
        (
            Column(
                "way", "in step by", text=True, help="Schedule of the pipeline, or synchronization of the replicas."
            ),
            lambda arm: name(arm.way.name),
        ),
        (SCHEME, lambda arm: name(arm.scheme)),
        (
            Column("group", "of", text=True, help="Values of the matrix that the compared modes have in common."),
            lambda arm: name(arm.group if several else ""),
        ),
        (
            Column(
                "time_to_loss_ratio",
                "time to loss, vs reference (95 % CI)",
                help=_write_help("Time to the loss in seconds"),
            ),
            _make_ratio_entry,
        ),
        (Column("reached", "reached", text=True, help="Pairs in which the loss was reached."), _make_reached_entry),
        (
            Column(
                "time_to_loss_s",
                f"time ({unit.name})",
                help="Time in seconds spent in steps, for the runs that reached the loss.",
            ),
            lambda arm: quantity(arm.seconds, unit.show),
        ),
        (
            Column("target_loss", "loss to reach", help="Mean of the reference's last loss plus the margin."),
            lambda arm: quantity(arm.target, loss_digits),
        ),
        (
            Column(
                "loss_to_reference",
                "loss vs reference (95 % CI)",
                group=1,
                help=_write_help("Validation loss at the end"),
            ),
            lambda arm: estimate(arm.loss, loss_interval),
        ),
        *make_fields([WAITING], modes, lambda one, arm: arm.waiting),
        (
            Column(
                "waiting_change",
                "vs reference (95 % CI)",
                group=2,
                help=_write_help("Fraction of the step spent waiting"),
            ),
            lambda arm: estimate(arm.waiting_change, lambda change: between(change, _format_points)),
        ),
        *make_fields([STALENESS_MEAN, STALENESS_MOST], modes, lambda one, arm: one.average(arm.runs)),
    ]
    title = "Synchronization: time to a loss, waiting, staleness"
    return tabulate(
        "synchrony",
        title,
        modes,
        fields,
        notes=[*_describe_rule(modes, margin), *_describe_histograms(modes)],
        always=3,
    )


def _write_help(what: str) -> str:
    return f"{what}, compared with the reference's run of the same scheme and seed, with its interval."


def _format_points(part: float) -> str:
    return f"{100 * part:+.1f} %"


def _make_ratio_entry(arm: Arm) -> Entry:
    if arm.against and arm.state in ("not reached", "unknown"):
        return Entry(arm.state, None, _TONES[arm.state])
    return estimate(arm.time_ratio, speed_interval)


def _make_reached_entry(arm: Arm) -> Entry:
    if arm.is_reference:
        return name("reference")
    return Entry(f"{arm.reached} of {arm.pairs}", arm.state, _TONES.get(arm.state, ""))


def _describe_rule(modes: Sequence[Arm], margin: float) -> Iterator[str]:
    references = dict.fromkeys(arm.against for arm in modes if arm.against)
    if not references:
        return
    bases = {arm.basis for arm in modes if arm.times}
    loss = "training loss (mean of the last steps)" if bases == {"training"} else "validation loss"
    yield (
        f"Reference: {' and '.join(references)}, in which all ranks wait for each other. For each seed, the loss "
        f"to reach is the reference's last {loss} plus {percent(margin)}. Ratios below 1 mean faster. Evaluations "
        "take no time."
    )
    if any(arm.state == "reached in part" for arm in modes):
        yield (
            "If not all pairs reached the loss, the ratio covers only the pairs that did: the mode is worse than shown."
        )


def _describe_histograms(modes: Sequence[Arm]) -> Iterator[str]:
    """Yield staleness histograms as text."""
    for arm in modes:
        if arm.ages:
            who = ", ".join(name(text).shown for text in (arm.way.name, arm.group, arm.scheme) if text)
            yield f"{who}: gradients by staleness: {describe_ages(arm.parts)}."
