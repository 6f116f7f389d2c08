"""Tests of verdicts: each branch, for intervals and for complete synthetic submissions."""

from pathlib import Path

import pytest
from planted_results import FLOPS_PER_SAMPLE, Planted, write
from planted_schemes import JITTER, SIZE, diverge, fail, planted
from report_tables import cell, cells

from hpcbench.report.answer import answer, list_trouble
from hpcbench.report.verdicts import NO_BASELINE, resolve_verdict


def verdicts(root: Path) -> dict[str, str]:
    return {row.scheme: row.verdict for row in cell(root).rows}


def test_every_pair_of_findings_has_its_verdict() -> None:
    assert resolve_verdict("faster", "no worse").text == "faster, loss no worse"
    assert resolve_verdict("faster", "better").text == "faster, loss no worse"
    assert resolve_verdict("faster", "inconclusive").text == "faster, loss inconclusive"
    for loss in ("better", "no worse", "inconclusive", None):
        assert resolve_verdict("not faster", loss).text == "not faster"  # type: ignore[arg-type]
        assert resolve_verdict("inconclusive", loss).text == "inconclusive"  # type: ignore[arg-type]


def test_what_is_as_fast_is_said_and_a_failed_pair_is_no_good_loss() -> None:
    assert (
        resolve_verdict("as fast", "no worse").text == resolve_verdict("as fast", None).text == "as fast (within 3 %)"
    )
    assert resolve_verdict("as fast", "worse").text == "as fast (within 3 %), loss worse"
    assert resolve_verdict("faster", "no worse", steady=False).text == "faster, loss no worse on average only"
    assert resolve_verdict("not faster", "no worse", steady=False).text == "not faster"
    assert resolve_verdict("inconclusive", "no worse", near=True).text == "about as fast, inconclusive"
    assert resolve_verdict("faster", "inconclusive", near=True).text == "faster, loss inconclusive"


def test_a_worse_loss_is_said_first_whatever_the_speed() -> None:
    values_by_name = {speed: resolve_verdict(speed, "worse") for speed in ("faster", "not faster", "inconclusive")}  # type: ignore[arg-type]
    assert {speed: outcome.text for speed, outcome in values_by_name.items()} == {
        "faster": "faster, but the loss is worse",
        "not faster": "not faster, loss worse",
        "inconclusive": "speed inconclusive, loss worse",
    }
    assert {(outcome.group, outcome.tone) for outcome in values_by_name.values()} == {("worse", "warning")}


def test_planted_truths_are_found(tmp_path: Path) -> None:
    root = write(
        tmp_path / "001",
        planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 2.9), "mzhybrid": (0.15, 2.7), "naive-mpc": (0.3, 2.7)}),
    )
    assert verdicts(root) == {
        "baseline": "",
        "naive-zfp8": "faster, but the loss is worse",
        "mzhybrid": "faster, loss no worse",
        "naive-mpc": "not faster",
    }
    compared_cell = cell(root)
    mzhybrid = compared_cell.row("mzhybrid")
    assert mzhybrid is not None and mzhybrid.speed is not None and mzhybrid.speed.low is not None
    assert mzhybrid.speed.pairs == 3
    assert mzhybrid.speed.low < 0.2 / 0.15 < (mzhybrid.speed.high or 0)
    assert mzhybrid.speed.estimate == pytest.approx(0.2 / 0.15, rel=0.01)
    assert mzhybrid.wire_over_message == pytest.approx(0.5)
    answer_text = " ".join(answer(compared_cell, "local"))
    assert answer_text.startswith(f"Yes. On this machine ({SIZE}) compression pays. Best: mzhybrid, 1.33 times ")
    assert "Faster, but at a worse loss: naive-zfp8" in answer_text
    assert "Not faster: naive-mpc" in answer_text


def test_a_row_by_hand(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.5, 2.0), Planted("baseline", 2, 0.25, 2.2)])
    row = cell(root).rows[0]
    # 8 samples per step: 16 and 32 samples/s with the geometric mean sqrt(512)
    assert row.samples_per_s == pytest.approx(512**0.5)
    assert row.tokens_per_s == pytest.approx(128 * 512**0.5)
    assert row.model_flops_per_rank == pytest.approx(FLOPS_PER_SAMPLE * 512**0.5 / 8)
    assert row.loss_valid == pytest.approx(2.1)


def test_the_warm_up_does_not_count(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.5, 2.0)], steps=12, warmup=7)
    run = cell(root).runs[0]
    assert (run.steps, run.step_seconds, run.message_bytes) == (5, 0.5, 5_000_000)


def test_swapped_pairs_change_the_answer(tmp_path: Path) -> None:
    machine = (1.0, 1.4, 0.6)
    runs = [
        Planted(s, k + 1, t * machine[k], 2.7 + JITTER[k])
        for k in range(3)
        for s, t in (("baseline", 0.2), ("mzhybrid", 0.17))
    ]
    assert verdicts(write(tmp_path / "001", runs))["mzhybrid"] == "faster, loss no worse"
    for run in runs:
        if run.scheme == "mzhybrid":
            run.repeat = run.repeat % 3 + 1
    assert verdicts(write(tmp_path / "002", runs))["mzhybrid"] == "inconclusive"


def test_one_pair_shows_nothing(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.02, 2.7)}, repeats=1))
    assert verdicts(root)["mzhybrid"] == "inconclusive"
    row = cell(root).row("mzhybrid")
    assert row is not None and row.speed is not None
    assert row.speed.estimate == pytest.approx(10, rel=0.01)
    answer_text = " ".join(answer(cell(root), "local"))
    assert (
        "Inconclusive, because there are too few repeats: mzhybrid. A single pair has no interval: raise `repeats:`"
        in answer_text
    )
    assert "(number of pairs: 1)" in answer_text and "one pair has no interval" in answer_text


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"naive-mpc": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    assert set(verdicts(root).values()) == {NO_BASELINE.text}
    assert answer(cell(root), "local") == ["Inconclusive. Nothing can be compared: the baseline has no run."]
    assert all(row.speed is None and row.loss is None for row in cell(root).rows)


def test_with_a_failed_baseline_nothing_is_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    for k in (1, 2, 3):
        fail(root, f"r{k}-baseline", 137)
    assert verdicts(root)["mzhybrid"] == NO_BASELINE.text
    assert verdicts(root)["baseline"].startswith("failed: a rank was killed by signal 9 (KILL)")
    assert answer(cell(root), "local") == ["Inconclusive. Nothing can be compared: no run of baseline completed."]


def test_cells_are_not_mixed(tmp_path: Path) -> None:
    runs = [
        run
        for nodes, ratio in ((1, 1.5), (2, 0.5))
        for run in planted({"baseline": (0.2, 2.7), "mzhybrid": (0.2 * ratio, 2.7)}, cell={"nodes": nodes})
    ]
    row, two = cells(write(tmp_path / "001", runs))
    assert (row.values, row.rows[1].verdict) == ({"nodes": 1}, "not faster")
    assert (two.values, two.rows[1].verdict) == ({"nodes": 2}, "faster, loss no worse")


def test_divergence_is_the_verdict(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 2.7), "mzhybrid": (0.1, 2.7)}))
    for k in (1, 2, 3):
        diverge(root, f"r{k}-naive-zfp8", 7)
    verdict_by_scheme = verdicts(root)
    assert verdict_by_scheme["naive-zfp8"] == "diverged (NaN at step 7)"
    assert verdict_by_scheme["mzhybrid"] == "faster, loss no worse"
    row = cell(root).row("naive-zfp8")
    assert row is not None and row.speed is None and row.partial
    assert row.loss_valid != row.loss_valid
    assert "r1-naive-zfp8, r2-naive-zfp8, r3-naive-zfp8: nan: loss is nan" in " ".join(list_trouble(cell(root)))


def test_one_divergence_among_good_runs_is_the_verdict(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    diverge(root, "r2-mzhybrid", 5)
    assert verdicts(root)["mzhybrid"] == "diverged (NaN at step 5) in 1 of 3 runs"
    answer_lines = answer(cell(root), "local")
    assert answer_lines[0].startswith("Inconclusive. Nothing can be compared")
    assert answer_lines[1] == "Diverged and therefore not compared: mzhybrid."


def test_the_rest_of_a_set_still_counts(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}, repeats=4))
    fail(root, "r2-mzhybrid", 137)
    fail(root, "r3-baseline", 1)
    row = cell(root).row("mzhybrid")
    assert row is not None and row.speed is not None
    assert (row.speed.pairs, row.completed) == (2, 3)
    assert row.verdict.endswith("(1 of 4 runs failed)")
    lines = list_trouble(cell(root))
    assert any(line.startswith("r2-mzhybrid: failed: a rank was killed by signal 9 (KILL)") for line in lines)
    assert any(line.startswith("r3-baseline: failed: exit status 1") for line in lines)


def test_a_run_that_is_missing(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    for path in (root / "runs" / "r1-mzhybrid").iterdir():
        path.unlink()
    row = cell(root).row("mzhybrid")
    assert row is not None and row.speed is not None
    assert row.speed.pairs == 2
    assert "(1 of 3 runs lost)" in row.verdict


def test_gaps_and_doubles_are_noted(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7)}, repeats=1))
    path = root / "runs" / "r1-baseline" / "log.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:6], "step  4/12 | loss 3.1\n", *lines[7:]]))
    notes = cell(root).runs[0].notes
    assert any("step 4 is not in the log" in note for note in notes)
    assert any(f"{path}:7: the line of step 4 is truncated" in note for note in notes)


def test_each_change_of_loss_has_its_words(tmp_path: Path) -> None:
    losses = {"baseline": 2.7, "better": 2.5, "close": 2.705, "alike": 2.7, "worse": 2.9}
    runs = [
        Planted(scheme, k + 1, 0.2, loss + 0.01 * k + (0.0005 * (k - 1) if scheme != "baseline" else 0))
        for k in range(3)
        for scheme, loss in losses.items()
    ]
    rows = cell(write(tmp_path, runs)).rows[1:]
    shown = {row.scheme: row.loss_shown for row in rows}
    assert shown == {"better": "better", "close": "no worse", "alike": "no worse", "worse": "worse"}
    # All ran equally fast, so losses at equal time are those of the last step. Because no speed differs significantly,
    # none of the level remains for them.
    in_time = {row.scheme: (round(row.loss_in_time.estimate, 4), row.loss_in_time.shown) for row in rows}
    changes = {"better": -0.2, "close": 0.005, "alike": 0.0, "worse": 0.2}
    assert in_time == {scheme: (change, "inconclusive") for scheme, change in changes.items()}


def test_a_faster_scheme_gains_at_equal_time_what_it_loses_at_equal_steps(tmp_path: Path) -> None:
    runs = planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 2.9)}, repeats=4)
    row = cell(write(tmp_path, runs)).row("naive-zfp8")
    assert row is not None and row.loss_in_time is not None
    assert (row.loss_shown, row.loss_in_time.shown) == ("worse", "better")


def test_a_scheme_that_diverged_corrects_nothing(tmp_path: Path) -> None:
    root = write(tmp_path, planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 2.7), "mzhybrid": (0.1, 2.7)}))
    diverge(root, "r2-naive-zfp8", 5)
    rows = cell(root).rows
    assert [row.speed is None for row in rows] == [True, True, False]
    alone = planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)})
    without = cell(write(tmp_path / "alone", alone)).row("mzhybrid")
    assert rows[2].speed is not None and rows[2].speed.equal is not None
    assert without is not None and without.speed is not None and without.speed.equal is not None
    assert rows[2].speed.equal.level == without.speed.equal.level


def test_step_times_have_an_interval_over_the_runs(tmp_path: Path) -> None:
    root = write(tmp_path, planted({"baseline": (0.2, 2.7)}), steps=42)
    (row,) = cell(root).rows
    assert row.step_seconds is not None and row.step_seconds.low is not None
    assert row.step_seconds.low < 0.2 < (row.step_seconds.high or 0)


def test_absurd_figures_are_compared_with_nothing(tmp_path: Path) -> None:
    root = write(tmp_path, planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    for path in root.glob("runs/*-mzhybrid/log.txt"):
        path.write_text(path.read_text().replace('"loss": 2.', '"loss": 1e308, "was": 2.'))
    row = cell(root).row("mzhybrid")
    assert row is not None and (row.loss, row.loss_valid, row.speed_shown) == (None, None, "faster")
    assert row.verdict == "faster, no loss to compare"
