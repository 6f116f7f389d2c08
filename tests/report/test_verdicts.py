"""Tests of verdicts: each branch, for intervals and for complete synthetic submissions."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from planted_results import FLOPS_PER_SAMPLE, Planted, write, write_marker
from report_tables import cell, cells

from hpcbench.report.answer import answer, list_trouble
from hpcbench.report.verdicts import NO_BASELINE, resolve_verdict

SIZE = "gpt-tiny 0.8 M parameters, 12 steps"
"""Model and size of the synthetic runs, as in a headline."""
NOISE = (1.00, 1.01, 0.99, 1.005)
"""Machine variation that all schemes of a repeat share."""
JITTER = (0.0, 0.002, -0.002, 0.001)
"""Machine variation of each run."""


def planted(
    schemes: dict[str, tuple[float, float]], repeats: int = 3, cell: dict[str, int] | None = None
) -> list[Planted]:
    """Return runs with the given (seconds, loss) of each scheme, plus small noise."""
    return [
        Planted(
            scheme, k + 1, seconds * NOISE[k] * (1 + JITTER[(k + i) % 4]), loss + JITTER[(k + i) % 4], 0.5, cell or {}
        )
        for k in range(repeats)
        for i, (scheme, (seconds, loss)) in enumerate(schemes.items())
    ]


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


def fail(root: Path, run: str, status: int, keep: int = 9) -> None:
    """Cut a run's log in the middle."""
    path = root / "runs" / run / "log.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:keep]))
    write_marker(path.parent, f"j{int(run[1]):04}-r{run[1]}", status)


def diverge(root: Path, run: str, step: int) -> None:
    """Change a run's loss to NaN."""
    path = root / "runs" / run / "log.txt"
    lines = path.read_text().splitlines(keepends=True)[: 3 + step]
    before, after = lines[-1].split("| loss ")
    lines[-1] = before + "| loss nan |" + after.split("|", 1)[1]
    lines.append(json.dumps({"event": "end", "state": "nan", "steps": step, "reason": "loss is nan"}) + "\n")
    path.write_text("".join(lines))
    write_marker(path.parent, f"j{int(run[1]):04}-r{run[1]}", 1)


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


def test_an_answer_is_inconclusive_if_only_controls_can_be_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7), "naive-bf16": (0.19, 2.7)}))
    diverge(root, "r2-mzhybrid", 5)
    first, *_ = answer(cell(root), "local")
    sentence = "no scheme with a codec can be compared with the baseline."
    assert first == f"Inconclusive. On this machine ({SIZE}) {sentence}"


def test_a_fast_divergence_does_not_turn_the_answer(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.05, 2.7), "mzhybrid": (0.3, 2.7)}))
    diverge(root, "r2-naive-zfp8", 5)
    answer_lines = answer(cell(root), "local")
    assert (
        answer_lines[0]
        == f"No. On this machine ({SIZE}) compression does not pay: all schemes are slower than the baseline."
    )
    assert answer_lines[1] == "Diverged and therefore not compared: naive-zfp8."


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


@pytest.mark.parametrize(
    ("attempts", "says"),
    [
        ((1, 1, 1), "runs with the same seed (number of pairs: 3), in the same allocation; intervals"),
        (
            (1, 2, 1),
            "runs with the same seed (number of pairs: 3), 1 of 3 pairs in two allocations, perhaps on other nodes;",
        ),
        (
            (2, 2, 2),
            "runs with the same seed (number of pairs: 3), each run in its own allocation, perhaps on other nodes; int",
        ),
    ],
)
def test_pairs_of_two_allocations_are_told(tmp_path: Path, attempts: tuple[int, ...], says: str) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}))
    for scheme in ("baseline", "mzhybrid"):
        for repeat, attempt in enumerate(attempts, 1):
            path = root / "runs" / f"r{repeat}-{scheme}" / "status.json"
            mark = json.loads(path.read_text())
            path.write_text(json.dumps({**mark, "id": "7", "attempt": attempt if scheme == "mzhybrid" else 1}))
    assert says in " ".join(answer(cell(root), "lassen"))


def test_a_control_is_told_from_compression(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7), "identity": (0.1, 2.7), "mzhybrid": (0.4, 2.7)}))
    answer_lines = answer(cell(root), "lassen")
    assert answer_lines[:2] == [
        f"No. On lassen ({SIZE}) compression does not pay: all schemes with a codec are slower than the baseline.",
        "Faster without a codec, at a loss no worse than the baseline's: identity (2.00 times, no codec).",
    ]
    assert answer_lines[2].startswith(
        "identity, the same algorithm without a codec, runs at 2.00 times the baseline's speed"
    )


def test_what_is_not_faster_than_its_algorithm_without_a_codec_does_not_pay(tmp_path: Path) -> None:
    times = {"baseline": (0.4, 2.7), "identity": (0.3, 2.7), "mzhybrid": (0.32, 2.7)}
    owing = write(tmp_path / "1", planted(times))
    assert answer(cell(owing), "local")[:2] == [
        f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays.",
        "Faster than the baseline: mzhybrid (1.25 times the baseline's speed, 1.24 to 1.26), at a loss no worse than"
        " the baseline's, but not significantly faster than identity, which has no codec.",
    ]
    both = write(tmp_path / "2", planted({**times, "naive-mpc": (0.2, 2.7)}))
    first, recommendation, also, second = answer(cell(both), "local")[:4]
    assert also == "Also faster, at a loss no worse than the baseline's: identity (1.33 times, no codec)."
    assert recommendation.startswith("With naive-mpc, 1000 steps take ")
    assert first.startswith(
        f"Yes. On this machine ({SIZE}) compression pays. Best: naive-mpc, 2.00 times the baseline's speed (95 %"
        " interval 1.98 to 2.01); the loss changes by "
    )
    change = r"[+-]\d\.\d{4} \([+-]\d\.\d{4} to [+-]\d\.\d{4}\), no worse within the margin of 1 %\.$"
    assert re.search(change, first)
    assert second == (
        "Faster than the baseline: mzhybrid (1.25 times the baseline's speed, 1.24 to 1.26), at a loss no worse than"
        " the baseline's, but not significantly faster than identity, which has no codec."
    )


def test_no_scheme_pays_and_it_is_said(tmp_path: Path) -> None:
    slow = write(tmp_path / "1", planted({"baseline": (0.2, 2.7), "mzhybrid": (0.4, 2.7), "naive-mpc": (0.3, 2.7)}))
    assert answer(cell(slow), "local")[0] == (
        f"No. On this machine ({SIZE}) compression does not pay: all schemes are slower than the baseline."
    )
    worse = write(tmp_path / "2", planted({"baseline": (0.2, 2.7), "naive-zfp8": (0.1, 3.7)}))
    assert answer(cell(worse), "local")[0] == (
        f"No. On this machine ({SIZE}) compression does not pay: the faster schemes train to a worse loss."
    )


def test_gaps_and_doubles_are_noted(tmp_path: Path) -> None:
    root = write(tmp_path / "001", planted({"baseline": (0.2, 2.7)}, repeats=1))
    path = root / "runs" / "r1-baseline" / "log.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:6], "step  4/12 | loss 3.1\n", *lines[7:]]))
    notes = cell(root).runs[0].notes
    assert any("step 4 is not in the log" in note for note in notes)
    assert any(f"{path}:7: the line of step 4 is truncated" in note for note in notes)


@pytest.mark.parametrize(
    ("ratios", "sentence"),
    [
        ((1.1,), f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays."),
        ((1.1, 1.2, 2.3), f"Inconclusive. On this machine ({SIZE}) it is unclear whether compression pays."),
        (
            (1.12, 1.2, 1.275),
            f"Inconclusive. On this machine ({SIZE}) compression seems to lose time: naive-zfp8 (0.84 times the"
            " baseline's speed, 0.71 to 0.98)",
        ),
    ],
)
def test_a_loss_of_time_seems_so_only_where_its_interval_lies_below_one(
    tmp_path: Path, ratios: Sequence[float], sentence: str
) -> None:
    runs = [Planted("baseline", k, 1.0, 2.0) for k in range(1, len(ratios) + 1)]
    runs += [
        Planted(scheme, k, ratio, 2.0) for scheme in ("naive-zfp8", "naive-mpc") for k, ratio in enumerate(ratios, 1)
    ]
    answer_text = " ".join(answer(cell(write(tmp_path, runs)), "local"))
    assert sentence in answer_text
    assert "does not pay" not in answer_text


@pytest.mark.parametrize(
    ("ratios", "sentence"),
    [
        (
            (0.4, 1.5, 6.0),
            "The speed of identity, the same algorithm without a codec, is inconclusive: 1.53 times the baseline's"
            " speed, 0.05 to 44.30.",
        ),
        (
            (1.57,),
            "The speed of identity, the same algorithm without a codec, is inconclusive: 1.57 times the baseline's"
            " speed, 1 pair.",
        ),
        (
            (1.56, 1.57, 1.58),
            "identity, the same algorithm without a codec, runs at 1.57 times the baseline's speed, 1.55 to 1.60:"
            " this part of the difference is due to the algorithm, and the rest to the codecs.",
        ),
        (
            (0.999, 1.0, 1.001),
            "identity, the same algorithm without a codec, runs at 1.00 times the baseline's speed, 1.00 to 1.00: the"
            " algorithm alone gains nothing.",
        ),
    ],
)
def test_a_part_is_the_algorithms_only_where_it_is_shown(
    tmp_path: Path, ratios: Sequence[float], sentence: str
) -> None:
    runs = [Planted("baseline", k, 0.2, 2.7) for k in range(1, len(ratios) + 1)]
    runs += [Planted("identity", k, 0.2 / ratio, 2.7) for k, ratio in enumerate(ratios, 1)]
    answer_lines = answer(cell(write(tmp_path, runs)), "local")
    assert sentence in answer_lines
    assert ("this part" in " ".join(answer_lines)) == ("this part" in sentence)


def test_the_cast_claims_no_speed_that_its_interval_does_not_allow(tmp_path: Path) -> None:
    runs = [Planted("baseline", k, 0.2, 2.7) for k in (1, 2, 3)]
    runs += [Planted("naive-bf16", k, 0.2 / ratio, 2.7) for k, ratio in enumerate((0.4, 1.5, 6.0), 1)]
    answer_lines = answer(cell(write(tmp_path, runs)), "local")
    assert any(
        sentence.startswith("The speed of naive-bf16, a cast to 16 bits, is inconclusive: 1.53 times")
        for sentence in answer_lines
    )


def test_the_method_is_said(tmp_path: Path) -> None:
    two = {"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7), "naive-mpc": (0.3, 2.7)}
    answer_text = " ".join(answer(cell(write(tmp_path / "1", planted(two))), "local"))
    assert "; intervals (95 %, Student's t) describe one comparison each. The error level of 5 %" in answer_text
    assert (
        "The error level of 5 % applies to all findings of the report together, even if repeats are added and the"
        " report is read again at 3, 5, 8, 12, 20, 30, 50 or 100 pairs." in answer_text
    )
    assert (
        "A loss is no worse if two one-sided tests show it within 0.0270 of the baseline's (1 % of it)." in answer_text
    )


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


def test_repeats_that_would_be_enough_are_said(tmp_path: Path) -> None:
    seconds = (0.19, 0.17, 0.18, 0.199)
    runs = [Planted("baseline", k + 1, 0.2, 2.7) for k in range(4)]
    runs += [Planted("mzhybrid", k + 1, seconds[k], 2.7) for k in range(4)]
    compared_cell = cell(write(tmp_path, runs))
    row = compared_cell.row("mzhybrid")
    assert row is not None and row.speed is not None and row.speed.enough is not None
    answer_text = " ".join(answer(compared_cell, "local"))
    assert f"With the current scatter, about {row.speed.enough} pairs would probably be enough" in answer_text


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


def test_slow_nodes_and_odd_allocations_are_named(tmp_path: Path) -> None:
    runs = planted({"baseline": (0.2, 2.7), "mzhybrid": (0.1, 2.7)}, repeats=4)
    for run in runs:
        run.hosts = {"n1": 1.0, "n2": 1.001, "n3": 1.12, "n4": 0.999}
    root = write(tmp_path, runs)
    slow = root / "runs" / "r3-baseline" / "log.txt"
    slow.write_text(slow.read_text().replace("time 0.19", "time 0.39").replace("samples/s 4", "samples/s 2"))
    answer_lines = answer(cell(root), "local")
    assert "Node n3 is 12 % slower than the median of its runs' nodes (8 of 8 runs)." in answer_lines
    assert any(sentence.startswith("The baseline of r3 ran at 0.5") for sentence in answer_lines)


@pytest.mark.parametrize("others", [0, 5])
@pytest.mark.parametrize("repeats", [3, 5])
def test_a_speed_of_about_one_is_not_called_too_few_repeats(tmp_path: Path, repeats: int, others: int) -> None:
    """A speed of 1.00 (0.98 to 1.02) is as fast as the baseline within 3 %.

    Together with undecided comparisons, the result is inconclusive, not unknown.
    """
    ratios = {3: (0.992, 1.0, 1.008), 5: (0.984, 0.992, 1.0, 1.008, 1.016)}[repeats]
    names = ["mzhybrid", *(f"other{k}" for k in range(others))]
    runs = [Planted("baseline", k + 1, 0.2, 2.7) for k in range(repeats)]
    runs += [
        Planted(name, k + 1, 0.2 * ratios[(k + place) % repeats], 2.7)
        for place, name in enumerate(names)
        for k in range(repeats)
    ]
    compared_cell = cell(write(tmp_path, runs))
    row = compared_cell.row("mzhybrid")
    assert row is not None and row.speed is not None and row.speed.low is not None and row.speed.high is not None
    assert (round(row.speed.low, 2), round(row.speed.high, 2)) == (0.98, 1.02)
    assert row.verdict == ("about as fast, inconclusive" if others else "as fast (within 3 %)")
    if not others:
        answer_lines = answer(compared_cell, "local")
        assert answer_lines[:2] == [
            f"No. On this machine ({SIZE}) compression does not pay: no scheme is 3 % faster than the baseline.",
            "As fast as the baseline, within 3 %: mzhybrid (1.00 times the baseline's speed, 0.98 to 1.02).",
        ]
