"""Tables, figures and verdict of `hpcbench history`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcbench.contract.text import make_printable
from hpcbench.contract.times import parse_time
from hpcbench.errors import UserError
from hpcbench.plot_style import COLOURS, DASHES, INK, MARKS, WIDTH, grid
from hpcbench.present.document import Chapter, Column, Document, Entry, Figure, Sentences, Table, make_chapter
from hpcbench.present.notation import between, name, phrase, significant
from hpcbench.present.results import RowResults, check_output, resolve_format
from hpcbench.report.history.levels import (
    LevelChange,
    SpeedLevel,
    find_changes,
    split_levels,
)
from hpcbench.report.history.read import (
    LeftOut,
    SeriesKey,
    SubmissionSpeed,
    describe_changes,
    find_files,
    read_history,
)
from hpcbench.report.statistics import geometric_interval

_COLUMNS = (
    Column("scheme", "scheme", text=True),
    Column("time", "started", text=True, help="Start of the first run (UTC)."),
    Column("speed", "{unit} (95 % CI)", help="Geometric mean of the runs, with its interval."),
    Column("runs", "runs"),
    Column("ratio", "change", help="Speed after a significant change of level, divided by the speed before."),
    Column("stack", "changed software", text=True, group=1, help="Differences from the previous submission."),
)
_METHOD = (
    "Each submission counts as one value. A change is significant at 5 % after Bonferroni's correction for all "
    "series and all possible positions (Student's t test; Welch's t test over the runs if there are only two "
    "submissions)."
)


@dataclass(frozen=True)
class SpeedSeries:
    """A series and its level changes."""

    key: SeriesKey
    points: list[SubmissionSpeed]
    changes: list[LevelChange]

    @property
    def levels(self) -> list[SpeedLevel]:
        """Levels of the series."""
        return split_levels(self.points, self.changes)

    @property
    def loss(self) -> float:
        """Fractional speed loss of the newest level relative to the fastest level."""
        speeds = [level.log_speed for level in self.levels]
        return 1 - math.exp(speeds[-1] - max(speeds))


@dataclass(frozen=True)
class History(RowResults):
    """Speed history of several series.

    Parameters
    ----------
    series
        All series.
    limit
        Fractional speed loss that is reported as a failure. If None, no failure is reported.
    left_out
        Submissions that are left out.
    """

    series: Sequence[SpeedSeries]
    limit: float | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def slower(self) -> list[SpeedSeries]:
        """Series whose speed loss is at least the limit."""
        if self.limit is None:
            return []
        return [series for series in self.series if series.changes and series.loss >= self.limit]

    def document(self, *, figures: bool = False) -> Document:
        """Return a document with one chapter per study, site, cell and unit."""
        groups: dict[SeriesKey, list[SpeedSeries]] = {}
        for series in self.series:
            groups.setdefault(replace(series.key, scheme=""), []).append(series)
        chapters = [_make_chapter(group, members, figures) for group, members in groups.items()]
        first = Chapter("History", "", (Sentences(tuple(self.answer()), "bad" if self.slower else ""),))
        return Document("History", (first, *chapters, Chapter("Method", "", (Sentences((_METHOD,)),))))

    def answer(self) -> list[str]:
        """Return the verdict, with one line per change."""
        lines = [_describe(series, change) for series in self.series for change in series.changes]
        points = sum(len(series.points) for series in self.series)
        if not lines:
            lines = [f"No significant change of speed in {len(self.series)} series of {points} points."]
        if self.limit is not None and self.slower:
            names = ", ".join(f"{_name(series.key)} by {100 * series.loss:.1f} %" for series in self.slower)
            lines.append(f"Slower than the fastest level by {100 * self.limit:g} % or more: {names}.")
        return [*lines, *self.left_out.describe()]

    def content(self) -> dict[str, Any]:
        """Return the series as machine-readable data."""
        failed = bool(self.slower)
        return {
            "schema": 1,
            "limit": self.limit,
            "failed": failed,
            "undated": self.left_out.undated,
            "unmeasured": self.left_out.unmeasured,
            "series": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per series."""
        return [
            {
                **vars(series.key),
                "loss": series.loss,
                "points": [
                    {"time": point.time, "submission": point.submission, "speeds": point.speeds, "stack": point.stack}
                    for point in series.points
                ],
                "changes": [
                    {"time": series.points[change.at].time, "ratio": change.ratio, "p": change.p}
                    for change in series.changes
                ],
            }
            for series in self.series
        ]


def make_history(
    points: Mapping[SeriesKey, list[SubmissionSpeed]], limit: float | None = None, left_out: LeftOut | None = None
) -> History:
    """Return the history of all series, whose changes are tested jointly."""
    series = [SpeedSeries(key, of, find_changes(of, len(points))) for key, of in points.items()]
    return History(series, limit, left_out or LeftOut())


def show_history(
    paths: Sequence[Path],
    limit: float | None,
    since: str,
    format: str | None,
    output: Path | None,
    plots: Path | None,
) -> int:
    """Show the history. Return 1 if a series lost at least the fraction `limit` of its speed."""
    chosen = resolve_format(format, output)
    check_output("--output", output)
    if chosen == "csv":
        raise UserError("history: CSV output is not supported: use --format json, or read the exported files directly")
    first = parse_time(since)
    if since and first is None:
        raise UserError(f"--since {make_printable(since, 40)}: give a date such as 2026-11-20")
    points, left_out = read_history(find_files(paths), first)
    history = make_history(points, limit, left_out)
    if not history.series:
        reasons = " ".join(left_out.describe()) or "Check table runs in the files, or --since."
        raise UserError(f"history: these files contain no completed run with a speed and a start time. {reasons}")
    history.show(chosen, output)
    if plots is not None:
        history.save((), plots)
    return 1 if history.slower else 0


def parse_percent(text: str) -> float:
    """Parse a fraction from text such as ``5%``, ``5 %`` or ``0.05``.

    Raises
    ------
    UserError
        If the text is not a number, or if the number is not between 0 and 100 %.
    """
    clean = text.strip()
    try:
        value = float(clean.removesuffix("%")) / (100 if clean.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UserError(f"--fail-if-slower {make_printable(text, 40)}: give a percentage between 0 and 100, such as 5%")
    return value


def _name(key: SeriesKey) -> str:
    return make_printable(": ".join(filter(None, (key.study, key.site, key.cell, key.scheme))), 200)


def _describe(series: SpeedSeries, change: LevelChange) -> str:
    point = series.points[change.at]
    word = "slower" if change.ratio < 1 else "faster"
    stack = "; ".join(describe_changes(series.points[change.at - 1], point))
    percent = f"{100 * abs(change.ratio - 1):.1f} %"
    because = f" Changed there: {make_printable(stack, 300)}." if stack else ""
    return f"{_name(series.key)}: {percent} {word} since {point.time[:10]} (p = {change.p:.2g}).{because}"


def _make_chapter(group: SeriesKey, members: Sequence[SpeedSeries], figures: bool) -> Chapter:
    rows = []
    for series in members:
        changes = {change.at: change for change in series.changes}
        for i, point in enumerate(series.points):
            speed = geometric_interval(point.speeds)
            shift = changes.get(i)
            stack = "; ".join(describe_changes(series.points[i - 1], point)) if i else ""
            tone: Any = "" if shift is None else "bad" if shift.ratio < 1 else "good"
            rows.append(
                (
                    name(series.key.scheme),
                    phrase(point.time[:16].replace("T", " ")),
                    Entry(between(speed, significant, " (1 run)"), speed.estimate),
                    Entry(str(len(point.speeds)), len(point.speeds)),
                    Entry(f"{shift.ratio:.3f}", shift.ratio, tone) if shift else Entry(),
                    phrase(stack),
                )
            )
    title = make_printable(f"{group.study} on {group.site}" + (f", {group.cell}" if group.cell else ""))
    columns = tuple(replace(column, head=column.head.format(unit=group.unit)) for column in _COLUMNS)
    table = Table("history", "", columns, tuple(rows))
    return make_chapter(title, "", (table, _plot(title, group.unit, members) if figures else None))


def _plot(title: str, unit: str, members: Sequence[SpeedSeries]) -> Figure:
    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, 2.6)
        axis = fig.add_subplot()
        marks: dict[datetime, None] = {}
        for number, series in enumerate(members):
            colour = COLOURS[number % len(COLOURS)]
            times = [point.start for point in series.points]
            speeds = [geometric_interval(point.speeds) for point in series.points]
            for time, speed in zip(times, speeds, strict=True):
                if speed.low is not None and speed.high is not None:
                    axis.plot([time, time], [speed.low, speed.high], color=colour, linewidth=1)
            label, marker = make_printable(series.key.scheme, 40), MARKS[number % len(MARKS)]
            estimates = [speed.estimate for speed in speeds]
            axis.plot(times, estimates, color=colour, marker=marker, markersize=3, linestyle="none", label=label)
            for level in series.levels:
                height = math.exp(level.log_speed)
                ends = [times[level.first], times[level.last]]
                axis.plot(ends, [height] * 2, color=colour, linestyle=DASHES[number % len(DASHES)], linewidth=1)
            for i in range(1, len(times)):
                if describe_changes(series.points[i - 1], series.points[i]):
                    marks[times[i]] = None
        for time in marks:
            axis.axvline(time, color=INK, linestyle=":", linewidth=0.8)
        axis.set_ylabel(unit)
        axis.set_ylim(bottom=0)
        axis.tick_params(axis="x", rotation=30)
        grid(axis)
        fig.legend(loc="outside upper center", ncols=2)

    caption = (
        "Speed of each submission. Bars: 95 % interval over its runs. Lines: levels between significant changes. "
        "Dotted lines: changes of the software or the machine, listed in the table."
    )
    return Figure("history", title, caption, draw)
