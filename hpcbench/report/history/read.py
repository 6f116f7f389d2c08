"""Reader of exported runs, whose speeds are grouped into submissions and series."""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcbench.contract.text import make_printable
from hpcbench.contract.times import parse_time
from hpcbench.errors import UserError
from hpcbench.report.export import RUNS, VERSION
from hpcbench.report.pace import UNITS, Rates, choose_rate
from hpcbench.report.statistics import is_usable

SUFFIXES = (".sqlite", ".db")
_SOFTWARE = ("hpcbench", "revision", "mpi", "torch", "python", "numpy", "kernels", "modules", "drivers")
_MACHINE = ("gpus", "processors", "devices")
STACK = (*_SOFTWARE, *_MACHINE)
"""Columns whose changes are marked on the time axis."""
_LEAST = ("run", "study", "scheme", "state", "started", "file")
"""Required columns of an export file."""


@dataclass(frozen=True)
class SeriesKey:
    """Identity of a series. Runs with the same key are compared over time."""

    study: str
    site: str
    cell: str
    scheme: str
    unit: str
    """Unit of the speeds: the first of `UNITS` that most of the runs provide."""


@dataclass(frozen=True)
class SubmissionSpeed:
    """Runs of a series in one submission."""

    time: str
    """Start time of the first run (UTC, ISO 8601)."""
    submission: str
    speeds: tuple[float, ...]
    """Speed of each completed run, in the unit of the series."""
    stack: Mapping[str, str] = field(default_factory=dict)
    """Known values of the `STACK` columns."""

    @property
    def start(self) -> datetime:
        """Start time of the first run."""
        start = parse_time(self.time)
        assert start is not None
        return start

    @property
    def log_speed(self) -> float:
        """Mean of the logarithms of the speeds."""
        return math.fsum(map(math.log, self.speeds)) / len(self.speeds)


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the SQLite files that are named in `paths` or contained in directories named in `paths`.

    Raises
    ------
    UserError
        If a path does not exist or no file is found.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{make_printable(str(path))}: does not exist: give SQLite files or a directory of them")
    if not files:
        raise UserError(
            "history: no .sqlite file found: write one for each submission with `hpcbench report SUBMISSION "
            "--export history/DATE.sqlite`"
        )
    return files


@dataclass(frozen=True)
class LeftOut:
    """Submissions that are not part of a history. Each contains completed runs of at least one series."""

    undated: Sequence[str] = ()
    """Submissions whose start is unknown."""
    unmeasured: Sequence[str] = ()
    """Submissions without a speed in the unit of the series, with the scheme."""

    def describe(self) -> list[str]:
        """Return a sentence for each reason."""
        reasons = {"their start is unknown": self.undated, "their runs have no speed": self.unmeasured}
        return [
            f"Left out, because {reason}: {', '.join(map(make_printable, names))}."
            for reason, names in reasons.items()
            if names
        ]


def read_history(
    files: Sequence[Path], since: datetime | None = None
) -> tuple[dict[SeriesKey, list[SubmissionSpeed]], LeftOut]:
    """Return the points of each series in chronological order, and the submissions that are left out.

    A run that occurs in several files counts once. Submissions from different files are distinct even if their
    directory is the same, because CI jobs often reuse a directory.

    Raises
    ------
    UserError
        If a file is damaged, not an export, or has a newer version.
    """
    points: dict[tuple[str, str, str, str], dict[tuple[Path, str], list[dict[str, Any]]]] = {}
    seen = set()
    for file in files:
        for run in _read_file(file):
            submission = run["submission"] or ""
            identity = submission, run["study"], run["site"], run["run"], run["started"] or str(file)
            if identity not in seen:
                seen.add(identity)
                key = run["study"] or "", run["site"] or "", _format_cell(run["cell"]), run["scheme"] or ""
                points.setdefault(key, {}).setdefault((file, submission or str(file)), []).append(run)
    series = {}
    undated: dict[str, None] = {}
    unmeasured: dict[str, None] = {}
    for key, submissions in points.items():
        rate = choose_rate([run["rates"] for runs in submissions.values() for run in runs])
        speeds = [_make_point(submission, runs, rate) for (_, submission), runs in submissions.items()]
        unmeasured |= dict.fromkeys(f"{point.submission}: {key[-1]}" for point in speeds if not point.speeds)
        undated |= dict.fromkeys(point.submission for point in speeds if point.speeds and not point.time)
        dated = [point for point in speeds if point.speeds and point.time]
        if recent := [point for point in dated if since is None or point.start >= since]:
            series[SeriesKey(*key, UNITS[rate])] = sorted(recent, key=lambda point: point.start)
    return series, LeftOut(list(undated), list(unmeasured))


def _read_file(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the completed runs of a file, with ``rates`` added."""
    name = make_printable(str(file))
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            base.row_factory = sqlite3.Row
            if (version := base.execute("PRAGMA user_version").fetchone()[0]) > VERSION:
                raise UserError(
                    f"{name}: the records have version {version}, but this hpcbench reads at most version {VERSION}: "
                    "update hpcbench"
                )
            present = {row["name"] for row in base.execute("PRAGMA table_info(runs)")}
            if missing := [column for column in _LEAST if column not in present]:
                raise UserError(
                    f"{name}: table runs has no column {missing[0]}: write the file again with `hpcbench report "
                    "--export`"
                )
            columns = ", ".join(column.name for column in RUNS.columns if column.name in present)
            for row in base.execute(f"SELECT {columns} FROM runs WHERE state = 'completed'"):
                run = dict.fromkeys(RUNS.names) | dict(row)
                yield run | {"rates": _read_rates(run)}
    except sqlite3.Error as error:
        raise UserError(
            f"{name}: cannot be read ({make_printable(str(error))}): write the file again with `hpcbench report "
            "--export`"
        ) from None


def _read_rates(run: Mapping[str, Any]) -> Rates:
    """Return the speed of a run. Files before version 10 contain only the step time and the batch size."""
    seconds, batch = run["step_seconds_mean"], run["global_batch"]
    samples = run["samples_per_s"] or (batch / seconds if batch and seconds else None)
    rates = samples, run["tokens_per_s"], run["tokens_per_s_per_rank"], 1 / seconds if seconds else None
    return tuple(rate if isinstance(rate, float) and rate > 0 and is_usable(rate) else None for rate in rates)


def _make_point(submission: str, runs: Sequence[Mapping[str, Any]], rate: int) -> SubmissionSpeed:
    stack = {
        name: ", ".join(sorted({_format_value(run[name]) for run in runs if run[name]}))
        for name in STACK
        if any(run[name] for run in runs)
    }
    starts = [start.astimezone(timezone.utc) for run in runs if (start := parse_time(run["started"]))]
    speeds = tuple(run["rates"][rate] for run in runs if run["rates"][rate] is not None)
    return SubmissionSpeed(min(starts).isoformat() if starts else "", submission, speeds, stack)


def _format_value(value: str) -> str:
    try:
        parts = json.loads(value)
    except ValueError:
        return value
    return " ".join(map(str, parts)) if isinstance(parts, list) else value


def _format_cell(cell: str | None) -> str:
    try:
        values = json.loads(cell or "{}")
    except ValueError:
        return cell or ""
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) if isinstance(values, dict) else ""


def describe_changes(before: SubmissionSpeed, after: SubmissionSpeed) -> list[str]:
    """Return software and hardware changes between two points, such as ``torch 2.14.1, was 2.13.0``.

    Facts that are missing from either point are ignored.
    """
    return [
        _describe_change(name, before.stack[name], after.stack[name])
        for name in STACK
        if name in before.stack and name in after.stack and before.stack[name] != after.stack[name]
    ]


def _describe_change(name: str, before: str, after: str) -> str:
    old, new = before.split(), after.split()
    if name == "modules":  # a long list with few changes
        removed = [module for module in old if module not in new]
        added = [module for module in new if module not in old]
        return f"modules {' '.join(added) or 'removed'}, was {' '.join(removed) or 'absent'}"
    return f"{name} {after}, was {before}"
