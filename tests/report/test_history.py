"""Tests of `hpcbench history`: an injected regression is found in stored submissions, without false alarms."""

import json
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, titan_lines, write, write_program

from hpcbench.cli import app
from hpcbench.errors import UserError
from hpcbench.report.history.levels import find_changes, split_levels
from hpcbench.report.history.read import SeriesKey, find_files, read_history
from hpcbench.report.history.show import make_history, parse_percent, show_history
from hpcbench.report.main import report

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from simulated.speeds import simulate_series


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """Function that returns a directory with ten exports.

    The last three exports have a different speed and PyTorch version.
    """

    def store(factor: float) -> Path:
        top = tmp_path_factory.mktemp("history")
        draw = random.Random(5)
        for number in range(10):
            slow = factor if number >= 7 else 1.0
            runs = [
                Planted(scheme, repeat, seconds * slow * (1 + draw.gauss(0, 0.008)), 2.7)
                for scheme, seconds in (("baseline", 0.2), ("naive-zfp8", 0.1))
                for repeat in (1, 2, 3)
            ]
            root, file = write(top / "runs" / f"{number:03}", runs), top / f"{number:03}.sqlite"
            report([root], output=top / "report.txt", exports=[file])
            with closing(sqlite3.connect(file)) as base, base:
                torch = "2.14.1" if number >= 7 else "2.13.0"
                base.execute(
                    "UPDATE runs SET torch = ?, started = replace(started, '11-21', ?)", (torch, f"11-{number + 1:02}")
                )
        return top

    return store


def test_a_planted_regression_in_ten_stored_submissions_is_found(
    stored: Callable[[float], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = stored(1.06)
    assert show_history([top], 0.05, "", None, None, tmp_path / "plots") == 1
    out = capsys.readouterr().out
    assert out.count("slower since 2026-11-08") == 2, "both schemes"
    assert "torch 2.14.1, was 2.13.0" in out and "Slower than the fastest level by 5 % or more" in out
    assert (tmp_path / "plots" / "history.svg").stat().st_size > 5000
    assert show_history([top], 0.08, "", None, None, None) == 0, "slower, but by less"
    assert show_history([top], 0.05, "2026-11-08", None, None, None) == 0, "only the new level remains"
    assert show_history([top, top / "009.sqlite"], None, "", "json", tmp_path / "h.json", None) == 0
    series = json.loads((tmp_path / "h.json").read_text())["series"]
    assert [len(each["points"]) for each in series] == [10, 10] and all(
        each["changes"][0]["ratio"] < 0.96 for each in series
    )


def test_without_a_regression_none_is_reported(stored: Callable[[float], Path]) -> None:
    assert show_history([stored(1.0)], 0.05, "", None, None, None) == 0


def test_submissions_without_a_start_are_named_and_left_out(
    stored: Callable[[float], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a start, a submission would be the oldest, and its speed would begin the history."""
    top = stored(1.0)
    with closing(sqlite3.connect(top / "003.sqlite")) as base, base:
        base.execute("UPDATE runs SET started = 'yesterday', submission = 'lost'")
        base.execute("UPDATE runs SET step_seconds_mean = step_seconds_mean / 2, samples_per_s = samples_per_s * 2")
    assert show_history([top], 0.05, "", None, None, tmp_path / "plots") == 0
    out = capsys.readouterr().out
    assert "Left out, because their start is unknown: lost." in " ".join(out.split()) and "1970" not in out
    show_history([top], None, "", "json", tmp_path / "h.json", None)
    assert json.loads((tmp_path / "h.json").read_text())["undated"] == ["lost"]
    with pytest.raises(UserError, match="with a speed and a start time"):
        show_history([top / "003.sqlite"], None, "", None, None, None)


def test_speeds_equal_those_of_the_report(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", repeat, 0.2 + repeat / 100, 2.7) for repeat in (1, 2)])
    report([root], output=tmp_path / "r.json", exports=[tmp_path / "all.sqlite"])
    ((_, (point,)),) = read_history(find_files([tmp_path]))[0].items()
    (cell,) = json.loads((tmp_path / "r.json").read_text())["submissions"][0]["cells"]
    assert point.speeds == pytest.approx([run["samples_per_s"] for run in cell["runs"]], rel=1e-9)


OWN = {"line": r"step (?P<step>\d+) loss (?P<loss>\S+)", "every": 1}


def store_programs(top: Path) -> None:
    """Export three submissions of programs: two print tokens per second, and one prints no speed."""
    titan = {"baseline": [titan_lines(50)], "int8": [titan_lines(80)]}
    untimed = {"baseline": [[f"step {step} loss 2.5" for step in range(1, 13)]], "int8": [["step 1 loss 2.5"]]}
    for name, form, lines in (("a", "torchtitan", titan), ("b", "torchtitan", titan), ("c", OWN, untimed)):
        report([write_program(top / name, form, lines)], output=top / "report.json", exports=[top / f"{name}.sqlite"])


def test_a_series_has_the_speed_that_its_logs_contain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in reports, the first rate that all runs have is used. The same scheme never mixes two units."""
    store_programs(tmp_path)
    titan, _ = read_history(find_files([tmp_path / "a.sqlite", tmp_path / "b.sqlite"]))
    speeds = {(key.scheme, key.unit): [point.speeds for point in points] for key, points in titan.items()}
    assert speeds == {("baseline", "tokens/s/rank"): [(50.0,)] * 2, ("int8", "tokens/s/rank"): [(80.0,)] * 2}
    ((key, (point,)),) = read_history([tmp_path / "c.sqlite"])[0].items()
    assert (key.scheme, key.unit, point.speeds) == ("baseline", "steps/s", (1.0,)), "from the time stamps"
    assert show_history([tmp_path], None, "", None, None, tmp_path / "plots") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "tokens/s/rank (95 % CI)" in out and "steps/s" not in out and "samples/s" not in out
    assert f"Left out, because their runs have no speed: {tmp_path}/c: baseline, {tmp_path}/c: int8." in out


def test_exports_of_version_9_have_the_speed_of_their_step_times(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    report([write(tmp_path / "1", [Planted("baseline", 1, 0.2, 2.7)])], output=tmp_path / "r.json", exports=[file])
    ((_, (point,)),) = read_history([file])[0].items()
    with closing(sqlite3.connect(file)) as base, base:
        for name in ("samples_per_s", "tokens_per_s", "tokens_per_s_per_rank"):
            base.execute(f"ALTER TABLE runs DROP COLUMN {name}")
    assert read_history([file])[0] == {SeriesKey("demo", "local", "", "baseline", "samples/s"): [point]}


def test_times_of_several_zones_are_ordered(tmp_path: Path) -> None:
    runs = [Planted("baseline", repeat, 0.2, 2.7) for repeat in (1, 2)]
    report([write(tmp_path / "1", runs)], output=tmp_path / "r.json", exports=[tmp_path / "1.sqlite"])
    for run, time in (("r1", "2026-11-21T00:30:00+02:00"), ("r2", "2026-11-20T23:00:00Z")):
        with closing(sqlite3.connect(tmp_path / "1.sqlite")) as base, base:
            base.execute("UPDATE runs SET started = ? WHERE run LIKE ?", (time, f"{run}%"))
    ((_, (point,)),) = read_history(find_files([tmp_path]))[0].items()
    assert point.time == "2026-11-20T22:30:00+00:00"
    for since, status in (("2026-11-20T23:15:00+01:00", 0), ("2026-11-20T22:15:00-01:00", None), ("yesterday", None)):
        if status == 0:
            assert show_history([tmp_path], None, since, None, None, None) == 0
        else:
            with pytest.raises(UserError, match=r"--since yesterday: give a date|with a speed and a start time"):
                show_history([tmp_path], None, since, None, None, None)


def test_false_alarms_are_rare_and_regressions_are_found() -> None:
    """A change is reported in at most 5 % of unchanged series.

    A slowdown of 6 % in the newest one or three values is found.
    """
    alarms = sum(bool(find_changes(simulate_series([1.0] * 10, seed=seed))) for seed in range(400))
    assert alarms <= 28  # 5 % of 400, and 1.8 standard errors
    for last, least in (
        (1, 45),
        (3, 54),
        (5, 54),
    ):  # of 60; a single submission among days that differ by 1 % is the hardest case
        factors = [1.0] * (10 - last) + [0.94] * last
        found_at = [[change.at for change in find_changes(simulate_series(factors, seed=seed))] for seed in range(60)]
        assert sum(10 - last in places for places in found_at) >= least, last


def test_many_series_are_tested_together() -> None:
    alarms = 0
    for seed in range(40):
        points = {
            SeriesKey("s", "m", "", str(k), "steps/s"): simulate_series([1.0] * 10, seed=1000 * seed + k)
            for k in range(10)
        }
        alarms += any(series.changes for series in make_history(points).series)
    assert alarms <= 6


def test_a_recovered_speed_is_no_failure() -> None:
    exact = 0
    for seed in range(20):
        points = simulate_series([1.0] * 6 + [0.9] * 6 + [1.0] * 6, seed=seed)
        changes = find_changes(points)
        if [change.at for change in changes] == [6, 12]:
            exact += 1
            assert [change.ratio for change in changes] == pytest.approx([0.9, 1 / 0.9], rel=0.03)
            assert len(split_levels(points, changes)) == 3
        assert not make_history({SeriesKey("s", "m", "", "x", "steps/s"): points}, 0.05).slower
    assert exact >= 15


def test_two_submissions_are_compared_run_by_run() -> None:
    assert find_changes(simulate_series([1.0, 0.8], seed=3, runs=5))
    assert not find_changes(simulate_series([1.0, 0.8], seed=3, runs=1)), "one run each shows no scatter"
    assert not find_changes(simulate_series([1.0], seed=3))


@pytest.mark.parametrize("text", ["", "x", "0%", "100%", "-5%", "nan", "5%%"])
def test_a_wrong_percentage_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--fail-if-slower"):
        parse_percent(text)


def test_a_percentage_is_read() -> None:
    assert [parse_percent(text) for text in ("5%", "5 %", "0.05")] == [0.05] * 3


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no database at all, but more than a hundred bytes " * 9)
    for name, statement in (("other.db", "CREATE TABLE runs (x)"), ("new.db", "PRAGMA user_version = 999")):
        with closing(sqlite3.connect(tmp_path / name)) as base, base:
            base.execute(statement)
    cases: list[tuple[Any, str]] = [
        ("text.sqlite", "cannot be read"),
        ("other.db", "table runs has no column run"),
        ("new.db", "but this hpcbench reads at most version"),
        ("missing", "does not exist"),
    ]
    for name, message in cases:
        with pytest.raises(UserError, match=message):
            show_history([tmp_path / name], None, "", None, None, None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.sqlite file"):
        app(["history", str(tmp_path / "empty")], standalone_mode=False)
