"""Tests of comparisons with an earlier submission: the reported changes, and those that cause exit status 1."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from planted_results import Planted, titan_lines, write, write_marker, write_program
from report_tables import cells, table

from hpcbench.errors import UserError
from hpcbench.report.changes import Change, list_changes, list_differing_settings
from hpcbench.report.compare import Cell
from hpcbench.report.findings import INCONCLUSIVE
from hpcbench.report.main import report
from hpcbench.report.statistics import welch

SCHEMES = {"baseline": (0.5, 2.70), "naive-zfp8": (0.4, 2.75), "mzhybrid": (0.45, 2.70)}
SCATTER = (1.0, 1.002, 0.999, 1.001)


def planted(schemes: dict[str, tuple[float, float]], shift: float = 0.0) -> list[Planted]:
    """Write four repeats whose speeds vary by 0.1 %, and whose losses depend on the seed."""
    return [
        Planted(scheme, k + 1, seconds * SCATTER[(k + i) % 4] * (1 + shift), loss + 0.05 * k + 1e-4 * ((k + i) % 3))
        for k in range(4)
        for i, (scheme, (seconds, loss)) in enumerate(schemes.items())
    ]


def compared(tmp_path: Path, now: list[Planted], then: list[Planted]) -> dict[str, Change]:
    new, old = cells(write(tmp_path / "new", now)), cells(write(tmp_path / "old", then))
    return {change.scheme: change for change in list_changes(new, old, new[0].criteria)}


def test_the_same_again_is_as_fast_and_no_worse(tmp_path: Path) -> None:
    changes_by_scheme = compared(tmp_path, planted(SCHEMES, shift=0.001), planted(SCHEMES))
    assert {change.verdict for change in changes_by_scheme.values()} == {"as fast, loss no worse"}
    assert not any(change.bad or change.good for change in changes_by_scheme.values())


def test_slower_and_worse_are_bad_and_named(tmp_path: Path) -> None:
    now = {**SCHEMES, "naive-zfp8": (0.44, 2.75), "mzhybrid": (0.45, 2.80)}
    changes_by_scheme = compared(tmp_path, planted(now), planted(SCHEMES))
    assert changes_by_scheme["naive-zfp8"].verdict == "slower, loss no worse"
    assert changes_by_scheme["mzhybrid"].verdict == "loss worse, as fast"
    assert (
        changes_by_scheme["naive-zfp8"].bad
        and changes_by_scheme["mzhybrid"].bad
        and not changes_by_scheme["baseline"].bad
    )
    assert changes_by_scheme["naive-zfp8"].speed is not None
    assert math.exp(changes_by_scheme["naive-zfp8"].speed.estimate) == pytest.approx(0.4 / 0.44, rel=1e-3)


def test_faster_and_better_are_good(tmp_path: Path) -> None:
    now = {**SCHEMES, "naive-zfp8": (0.36, 2.65)}
    changes_by_scheme = compared(tmp_path, planted(now), planted(SCHEMES))
    assert changes_by_scheme["naive-zfp8"].verdict == "faster, loss better" and changes_by_scheme["naive-zfp8"].good


def test_programs_are_compared_by_the_speed_that_they_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, tps in (("old", 800), ("new", 700)):
        lines = {"baseline": [titan_lines(500 + k) for k in range(3)], "int8": [titan_lines(tps + k) for k in range(3)]}
        write_program(tmp_path / name, "torchtitan", lines)
    assert report([tmp_path / "new"], against=tmp_path / "old") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "tokens/s/rank then" in out and "int8 801.0 701.0 0.88 (0.87 to 0.88) - - - ! slower; loss inconclusive" in out
    )
    rows = table(tmp_path / "new", "comparison")
    assert rows["int8"]["tokens_per_s_per_rank"].value == pytest.approx(701, rel=1e-4)


def test_losses_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """Losses differ by 0.05 between seeds, so only a comparison of pairs can show that nothing changed."""
    changes_by_scheme = compared(tmp_path, planted(SCHEMES), planted(SCHEMES))
    change = changes_by_scheme["mzhybrid"]
    assert change.loss_paired and change.loss_word == "same"
    losses = [[run.loss_valid or 0.0 for run in row.runs] for row in (change.new, change.old) if row]
    assert welch(*losses).p_within(0.027) > 0.05, "the pairing is what shows it"


def test_other_seeds_are_independent_samples(tmp_path: Path) -> None:
    then = [replace(run, repeat=run.repeat + 10) for run in planted(SCHEMES)]
    assert not compared(tmp_path, planted(SCHEMES), then)["mzhybrid"].loss_paired


def test_what_broke_or_is_missing_is_bad_and_what_is_new_is_not(tmp_path: Path) -> None:
    then = planted(SCHEMES)
    now = planted({"baseline": SCHEMES["baseline"], "mzhybrid": SCHEMES["mzhybrid"], "naive-mpc": (0.5, 2.7)})
    old, new = write(tmp_path / "old", then), write(tmp_path / "new", now)
    for run in now:
        if run.scheme == "mzhybrid":
            (new / "runs" / run.id / "log.txt").write_text("")
            write_marker(new / "runs" / run.id, f"j{run.repeat:04}-r{run.repeat}", 1)
    after, before = cells(new), cells(old)
    changes_by_scheme = {change.scheme: change for change in list_changes(after, before, after[0].criteria)}
    assert {scheme: change.fate for scheme, change in changes_by_scheme.items()} == {
        "baseline": "compared",
        "mzhybrid": "broken",
        "naive-mpc": "new",
        "naive-zfp8": "missing",
    }
    assert [scheme for scheme, change in changes_by_scheme.items() if change.bad] == ["mzhybrid", "naive-zfp8"]
    assert "failed" in changes_by_scheme["mzhybrid"].verdict
    back = {change.scheme: change for change in list_changes(before, after, after[0].criteria)}
    assert back["mzhybrid"].fate == "mended" and back["mzhybrid"].good and back["naive-mpc"].bad


def test_one_repeat_shows_nothing(tmp_path: Path) -> None:
    now = [run for run in planted({**SCHEMES, "mzhybrid": (0.9, 3.0)}) if run.repeat == 1]
    changes_by_scheme = compared(tmp_path, now, [run for run in planted(SCHEMES) if run.repeat == 1])
    assert {change.verdict for change in changes_by_scheme.values()} == {f"speed and loss {INCONCLUSIVE}"}


def test_a_scheme_that_cannot_be_tested_costs_the_others_nothing(tmp_path: Path) -> None:
    """A single repeat is never significant, so it cannot cause a false alarm."""
    shared = {"baseline": SCHEMES["baseline"]}
    lone = [Planted(f"scheme{k}", 1, 0.5, 2.7) for k in range(20)]
    few = [run for run in planted(shared, shift=0.0125) if run.repeat <= 2]
    before = [run for run in planted(shared) if run.repeat <= 2]
    alone = compared(tmp_path / "alone", few, before)["baseline"]
    among = compared(tmp_path / "among", few + lone, before + lone)["baseline"]
    assert alone.speed_word == among.speed_word == "down"


def test_losses_of_absurd_size_are_no_losses(tmp_path: Path) -> None:
    """The squares of the losses in this test overflow."""
    absurd = [replace(run, loss=1e200 * run.repeat) for run in planted(SCHEMES)]
    assert {change.loss_word for change in compared(tmp_path, absurd, planted(SCHEMES)).values()} == {"inconclusive"}


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    new = cells(write(tmp_path / "new", planted(SCHEMES), steps=20))
    old = cells(write(tmp_path / "old", planted(SCHEMES), steps=12))
    assert list_differing_settings(new, old) == ["train.steps 20, was 12"]
    assert list_differing_settings(new, new) == []
    for path in (tmp_path / "new").glob("runs/*/log.txt"):
        path.write_text(path.read_text().replace('"steps": 20,', '"steps": 20, "min_lr": 0.00030000000000000003,', 1))
    assert "train.min_lr 0.0003, was not set" in list_differing_settings(cells(tmp_path / "new"), old)


def in_environment(root: Path, **environment: object) -> Path:
    """Set the environment in the logs of a submission."""
    for path in root.glob("runs/*/log.txt"):
        lines = path.read_text().splitlines(keepends=True)
        lines[1] = json.dumps({"event": "environment", **environment}) + "\n"
        path.write_text("".join(lines))
    return root


def test_software_and_machine_that_changed_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = {"host": "n1", "cpu": "AMD EPYC", "gpus": [{"name": "H100", "driver": "570.1"}]}
    rank = {"rank": 0, "local_rank": 0, "host": "n1", "core_ranges": "0-7"}
    then = {
        "mpi": "MPICH 5.0.2",
        "torch": "2.9",
        "kernels": "avx512",
        "revision": "c0ffee",
        "modules": ["gcc/13"],
        "packages": {"torch": "2.9", "mpi4py": "4.0", "rich": "13", "idna": "3"},
        "hosts": [host],
        "world": [rank],
    }
    now = {
        **then,
        "mpi": "Open MPI 5.0.7",
        "torch": "2.10",
        "packages": {"torch": "2.10", "mpi4py": "4.1", "rich": "14", "idna": "4", "cupy-cuda12x": "13"},
        "hosts": [{**host, "host": "n2", "gpus": [{"name": "H100", "driver": "580.2"}]}],
        "world": [{**rank, "host": "n2", "core_ranges": "0-3"}],
    }
    old = in_environment(write(tmp_path / "old", planted(SCHEMES)), **then)
    new = in_environment(write(tmp_path / "new", planted(SCHEMES)), **now)
    expected = [
        "mpi Open MPI 5.0.7, was MPICH 5.0.2",
        "torch 2.10, was 2.9",
        "mpi4py 4.1, was 4.0",
        "cupy-cuda12x 13, was not installed",
        "versions of 2 other packages",
        "gpu.driver 580.2, was 570.1",
        "local rank 0 cores 0-3, was cores 0-7",
    ]
    report([new], "json", against=old)
    assert json.loads(capsys.readouterr().out)["environment"] == expected
    report([new], "md", against=old)
    text = capsys.readouterr().out
    assert all(f"Software or machine changed: {change}." in text for change in expected)
    assert "may be the cause" not in text, "nothing got slower or faster"
    slower = {scheme: (seconds * 1.5, loss) for scheme, (seconds, loss) in SCHEMES.items()}
    report([in_environment(write(tmp_path / "slow", planted(slower)), **now)], "table", against=old)
    verdict = " ".join(capsys.readouterr().out.split())
    assert f"may be the cause: {'; '.join(expected[:4])} and 3 more." in verdict
    same = in_environment(write(tmp_path / "same", planted(SCHEMES)), **then)
    report([same], "md", against=old)
    assert "changed:" not in capsys.readouterr().out


def test_false_alarms_stay_below_five_per_cent(tmp_path: Path) -> None:
    """A scheme is reported as worse in at most 8 % of 400 pairs of submissions that do not differ."""
    generator = random.Random(7)
    base = cells(write(tmp_path / "one", planted(SCHEMES)))

    def again() -> list[Cell]:
        rows = []
        for row in base[0].rows:
            runs = tuple(
                replace(
                    run,
                    samples_per_s=20 * math.exp(generator.gauss(0, 0.02)),
                    loss_valid=2.7 + generator.gauss(0, 0.02),
                )
                for run in row.runs
            )
            rows.append(replace(row, runs=runs))
        return [replace(base[0], rows=tuple(rows))]

    alarms = sum(any(change.bad for change in list_changes(again(), again(), base[0].criteria)) for _ in range(400))
    assert alarms <= 32, "5 % of 400 is 20; 32 is exceeded once in two hundred times by chance"


def test_the_command_prints_it_in_each_format_and_ends_with_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = {**SCHEMES, "naive-zfp8": (0.44, 2.75)}
    new, old = write(tmp_path / "new", planted(slower)), write(tmp_path / "old", planted(SCHEMES))
    assert report([new], against=old) == 1
    out = capsys.readouterr().out
    assert "Worse than before: naive-zfp8 (slower, loss no worse)." in out
    assert "0.91 (0.91 to 0.91)" in out
    assert report([old], "md", against=old) == 0
    assert "Nothing is significantly worse than before." in capsys.readouterr().out
    assert report([new], "json", against=old) == 1
    document = {row["scheme"]: row for row in json.loads(capsys.readouterr().out)["changes"]}
    assert document["naive-zfp8"]["bad"] and document["naive-zfp8"]["speed_change"]["estimate"] < 0.92
    assert report([new], output=tmp_path / "page.html", against=old) == 1
    assert "naive-zfp8" in (tmp_path / "page.html").read_text()
    with pytest.raises(UserError, match="cannot be combined with --against: use table, md, latex, html or json"):
        report([new], "csv", against=old)


def test_submissions_with_nothing_in_common_are_not_compared(tmp_path: Path) -> None:
    new = write(tmp_path / "new", [Planted("baseline", 1, 0.4, 2.7, cell={"nodes": 4})])
    old = write(tmp_path / "old", [Planted("baseline", 1, 0.4, 2.7, cell={"nodes": 8})])
    with pytest.raises(UserError, match="no combination of scheme and cell in common"):
        report([new], against=old)
    with pytest.raises(UserError, match="compares exactly two submissions"):
        report([new, old], against=old)


def test_what_is_better_is_not_undecided_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = [Planted("baseline", k + 1, 0.3 * SCATTER[k], 2.7 + 0.2 * (-1) ** k) for k in range(4)]
    then = [Planted("baseline", k + 1, 0.5 * SCATTER[k], 2.7) for k in range(4)]
    report([write(tmp_path / "new", now)], against=write(tmp_path / "old", then))
    out = capsys.readouterr().out
    assert f"Better than before: baseline (faster; loss {INCONCLUSIVE})." in out
    assert "Nothing is significantly worse than before." in out
    assert "Inconclusive:" not in out and "No change is significant" not in out


def test_where_nothing_is_shown_no_scheme_is_said_to_be_as_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [Planted("baseline", 1, 0.3, 2.7)]
    report([write(tmp_path / "new", now)], against=write(tmp_path / "old", now))
    assert "No change is significant in either direction: the submissions have too few" in capsys.readouterr().out
