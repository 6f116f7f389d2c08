"""Tests of inconsistent logs. Only injected errors are reported, each with its line and both numbers."""

# ruff: noqa: E501

import json
import re
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, log_lines, settings
from test_measures import GPU, foreign, on_gpus

from hpcbench.collect.submission import RunResult, from_log
from hpcbench.contract.settings import LoggedSettings
from hpcbench.predict import flops
from hpcbench.report.checks.relations import find_unit
from hpcbench.report.measures import measure

RUN = Planted("naive-zfp8", 1, 0.25, 2.71, 0.28)
LINES = log_lines(RUN)
STEP = next(i for i, line in enumerate(LINES, 1) if line.startswith("step  5/"))
TRAFFIC, END = (next(i for i, line in enumerate(LINES, 1) if f'"{name}"' in line[:20]) for name in ("traffic", "end"))


def notes(tmp_path: Path, line: int, old: str, new: str) -> list[str]:
    """Return the notes on a log in which one line was changed."""
    assert old in LINES[line - 1], f"{old!r} is not in {LINES[line - 1]!r}"
    lines = [*LINES[: line - 1], LINES[line - 1].replace(old, new), *LINES[line:]]
    path = tmp_path / "log.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return list(measure(from_log(path)).notes)


def test_an_honest_log_has_no_notes(tmp_path: Path) -> None:
    assert notes(tmp_path, 1, "", "") == []


FAULTS: list[tuple[int, str, str, str]] = [
    (STEP, "samples/s 32.00", "samples/s 36.00", "samples/s printed are 1.12 times the value that the step times imply: 36 printed, 32"),
    (STEP, "model 2.560", "model 3.840", "model FLOP/s printed are 1.5 times the value that the step times imply: 3.84e+09 printed, 2.56"),
    (STEP, "hardware 2.560", "hardware 1.280", "hardware over model FLOP/s is 0.5, but 1 according to line "),
    (STEP, "loss 4.337500", "loss nan", "the loss of step 5 is nan"),
    (3, "640000000.0", "860000000.0", "model_flops_per_sample is 8.6e+08, but 6.4e+08 according to the formula for the model's shape"),
    (TRAFFIC, '"message_bytes": 10000000', '"message_bytes": 10000008', "message bytes are 10000008, but the lines of steps 3 to 12 report 10000000"),
    (TRAFFIC, '"wire_bytes": 2800000', '"wire_bytes": 2800008', "wire bytes are 2800008, but the lines of steps 3 to 12 report 2800000"),
    (TRAFFIC, '"wire_bytes": 2800000', '"wire_bytes": 12000000', "zfp:8 makes messages larger: 12000000 wire bytes for 10000000"),
    (TRAFFIC, '"codec": "zfp:8"', '"codec": "none"', "2800000 wire bytes for 10000000 message bytes, although no codec is set"),
    (TRAFFIC, '"exposed_s": 4.0', '"exposed_s": 40.0', "ranks waited 0.5 s per step for messages, but a step took 0.25 s"),
    (END, '"seconds": 37.4', '"seconds": 5.0', "the run took 5.000 s, but its steps took 7.500 s"),
    (END, "06:31:00.000Z", "06:30:10.000Z", "the run took 37.400 s, but only 9.877 s passed between its start and end times"),
    (END, '"steps": 12', '"steps": 11', "the end event reports 11 steps, but the last step in the log is 12"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "old", "new", "message"), FAULTS)
def test_a_planted_fault_is_named_with_its_line(tmp_path: Path, line: int, old: str, new: str, message: str) -> None:
    notes_found = notes(tmp_path, line, old, new)
    place = f"{RUN.id}: {tmp_path / 'log.txt'}:{line}: "
    assert any(note.startswith(place) and message in note for note in notes_found), notes_found


def test_bytes_of_a_line_are_missed_in_the_channels(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, STEP, "message 1000000 B", "message 1000001 B")
    assert note.endswith(
        f":{TRAFFIC}: the channels' message bytes are 10000000, but the lines of steps 3 to 12 report 10000001"
    )


def test_figures_that_were_rounded_are_not_accused(tmp_path: Path) -> None:
    """A printed 0.05 samples/s may be 0.0549, so numbers are compared only to their printed digits."""
    lines = log_lines(Planted("baseline", 1, 145.9, 2.7))
    assert "samples/s 0.05 " in lines[-6]
    path = tmp_path / "log.txt"
    path.write_text("".join(line + "\n" for line in lines))
    assert measure(from_log(path)).notes == ()
    path.write_text("".join(line.replace("samples/s 0.05 ", "samples/s 0.07 ") + "\n" for line in lines))
    assert "samples/s printed are 1.28 times" in measure(from_log(path)).notes[0]


@pytest.mark.parametrize(
    ("values", "last"),
    [
        ([0.05, 0.06, 0.04], 0.01),
        ([1.282e9, 1.3e9, 1.29e9], 1e6),
        ([634e3, 1.05e6, 12e3], 1e3),
        ([0.2, 0.2], 0.001),  # may have been 0.200
        ([], 1.0),
    ],
)
def test_the_last_digit_of_a_column(values: list[float], last: float) -> None:
    assert find_unit(values) == pytest.approx(last)


# ---------------------------------------------------------------- formulas and peaks


def shaped(formula: float, column: str) -> RunResult:
    """Return a run of the synthetic model whose log contains the rate of a FLOP formula in the given column."""
    rate = formula * 8 / 8 / 0.25  # batch of 8, 8 ranks
    run = foreign(seconds=[0.25] * 3, **{column: [rate] * 3})
    run.settings = LoggedSettings.read(settings(RUN))
    return run


SHAPE = {"layers": 4, "hidden": 120, "vocab": 160, "seq_len": 128}


@pytest.mark.parametrize(
    "formula",
    [
        flops.count_model_flops(**SHAPE),
        flops.count_hardware_flops(**SHAPE, recompute="full"),
        flops.count_hardware_flops(**SHAPE, recompute="selective"),
        flops.count_neox_flops(**SHAPE, recompute="none"),
    ],
)
def test_flops_without_a_label_fit_one_of_the_formulas_or_none(formula: float) -> None:
    assert measure(shaped(formula, "unlabelled_flops_per_rank")).notes == ()
    (note,) = measure(shaped(1.2 * formula, "unlabelled_flops_per_rank")).notes
    assert note.startswith("x: train.log:10: the FLOP/s printed are ")
    assert "times the closest result of a formula for the model's shape" in note


def stated(tmp_path: Path, recompute: Any, follows: Any) -> list[str]:
    """Return the notes on a log that states one recomputation setting, but contains the FLOPs of another."""
    hardware = flops.count_hardware_flops(**SHAPE, recompute=follows)
    facts = {
        "hardware_flops_per_sample": hardware,
        "neox_flops_per_sample": flops.count_neox_flops(**SHAPE, recompute=follows),
    }
    configuration = json.loads(LINES[2])
    configuration["run"]["train"]["recompute"] = recompute
    lines = [*LINES[:2], json.dumps(configuration | facts), *LINES[3:]]
    ratio = hardware / flops.count_model_flops(**SHAPE)
    lines = [line.replace("hardware 2.560", f"hardware {2.56 * ratio:.3f}") for line in lines]
    lines = [line.replace("hardware 0.256", f"hardware {0.256 * ratio:.3f}") for line in lines]
    path = tmp_path / "log.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return list(measure(from_log(path)).notes)


MODES = ("none", "selective", "full", 2)


@pytest.mark.parametrize("recompute", MODES)
def test_what_is_recomputed_says_what_was_executed(tmp_path: Path, recompute: str | int) -> None:
    assert stated(tmp_path, recompute, recompute) == []
    for other in MODES:
        if {recompute, other} == {"full", 2} or recompute == other:
            continue  # every n layers costs as much as all layers
        result = stated(tmp_path, recompute, other)
        text = ["hardware_flops_per_sample", "neox_flops_per_sample"]
        if {recompute, other} == {"none", "selective"}:
            del text[1]  # GPT-NeoX does not distinguish it
        assert [note.split(":3: ")[1].split(" is ")[0] for note in result] == text
        assert all(
            note.endswith(f"according to the formula for the model's shape with recompute: {recompute}")
            for note in result
        )


@pytest.mark.parametrize("recompute", [None, True, -1, 0, 1.5, "all"])
def test_a_log_that_does_not_say_what_was_recomputed_may_have_any_of_it(tmp_path: Path, recompute: Any) -> None:
    assert all(stated(tmp_path, recompute, follows) == [] for follows in MODES)


def test_the_formula_that_was_taken_is_named(tmp_path: Path) -> None:
    executed = flops.count_hardware_flops(**SHAPE, recompute="full") * 32 / 8 / 1e9
    (note,) = [
        note for note in notes(tmp_path, STEP, "model 2.560", f"model {executed:.3f}") if "model FLOP/s printed" in note
    ]
    assert note.endswith("which is the result of Megatron-LM's formula with recomputation")


def test_neox_formula_by_hand() -> None:
    """24 f s l h^2 (1 + s/(6h) + V/(16 l h)) for 20B: 348.5 TFLOP per sample with recomputation, 3/4 without."""
    shape = {"layers": 44, "hidden": 6144, "vocab": 50432, "seq_len": 2048}
    with_, without = (flops.count_neox_flops(**shape, recompute=again) for again in ("full", "none"))
    assert with_ / 1e12 == pytest.approx(348.5, abs=0.1)
    assert with_ == pytest.approx(flops.count_hardware_flops(**shape, recompute="full"), rel=1e-12)
    assert without == pytest.approx(with_ * 3 / 4, rel=1e-12)


@pytest.mark.parametrize("column", ["model_flops_per_rank", "hardware_flops_per_rank", "unlabelled_flops_per_rank"])
def test_more_than_the_chip_can_do_is_said_to_be_impossible(column: str) -> None:
    run = on_gpus(foreign(**{column: [300e12, 468e12, 310e12]}), [GPU], train={"precision": "bf16"})
    (note,) = measure(run).notes
    assert note.startswith("x: train.log:11: 4.68e+14 ")
    assert note.endswith("is impossible: the dense peak of a rank's share of NVIDIA A100-SXM4-40GB is 3.12e+14 (150%)")
    assert measure(on_gpus(foreign(**{column: [300e12]}), [GPU], train={"precision": "bf16"})).notes == ()


def test_mfu_that_is_claimed_against_flops_and_peak() -> None:
    def claimed(mfu: float) -> tuple[str, ...]:
        run = foreign(model_flops_per_rank=[156e12] * 3, mfu=[0.5, mfu, 0.5])
        return measure(on_gpus(run, [GPU], train={"precision": "bf16"})).notes

    assert claimed(0.5) == ()
    (note,) = claimed(0.6)
    assert note.startswith("x: train.log:11: MFU: 0.6 is printed, but 0.5 recomputed (1 of 3 steps)")
    assert "MFU 110.0% is impossible" in measure(foreign(mfu=[0.5, 1.1])).notes[0]


# ---------------------------------------------------------------- foreign logs: checks without a shape


def test_a_foreign_log_that_agrees_has_no_notes() -> None:
    seconds = [0.512, 0.498, 0.731, 0.5]
    run = foreign(
        seconds=seconds,
        samples_per_s=[round(64 / s, 2) for s in seconds],
        tokens_per_s=[round(64 * 2048 / s) for s in seconds],
        tokens_per_s_per_rank=[round(64 * 2048 / s / 16) for s in seconds],
        model_flops_per_rank=[round(90 / s, 1) * 1e12 for s in seconds],
        hardware_flops_per_rank=[round(120 / s, 1) * 1e12 for s in seconds],
        consumed_samples=[64, 128, 192, 256],
        samples=[64] * 4,
    )
    assert measure(run).notes == ()


@pytest.mark.parametrize(
    ("column", "factor", "message"),
    [
        ("samples_per_s", 1.5, r"the samples/s printed are 1\.5 times the value that the step times imply: 48 printed, 32 recomputed \(1 of 5 steps\)"),
        ("tokens_per_s", 0.5, r"the tokens/s printed are 0\.5 times the value that the step times imply: .* according to line 1[0-9]"),
        ("model_flops_per_rank", 2, r"the model FLOP/s printed are 2 times .* according to line 1[0-9]"),
        ("unlabelled_flops_per_rank", 2, r"the FLOP/s printed are 2 times .* according to line 1[0-9]"),
    ],
)  # fmt: skip
def test_a_foreign_step_that_does_not_fit_the_others_is_named(column: str, factor: float, message: str) -> None:
    columns = {
        "seconds": [2.0, 2.1, 2.0, 2.2, 2.0],
        "samples": [64] * 5,
        "samples_per_s": [64 / s for s in (2.0, 2.1, 2.0, 2.2, 2.0)],
        column: [64 / s for s in (2.0, 2.1, 2.0, 2.2, 2.0)],
    }
    columns[column][2] *= factor
    notes_found = measure(foreign(**columns)).notes
    assert len(notes_found) == 1 and re.match(f"x: train.log:12: {message}", notes_found[0]), notes_found


def test_a_batch_that_grows_is_no_fault_where_lines_say_so() -> None:
    run = foreign(seconds=[1.0] * 4, samples_per_s=[16.0, 16.0, 32.0, 32.0], samples=[16, 16, 32, 32])
    assert measure(run).notes == ()
    (note,) = measure(foreign(seconds=[1.0] * 5, samples_per_s=[16.0, 16.0, 32.0, 32.0, 32.0])).notes
    assert (
        note.startswith("x: train.log:10: the samples/s printed are 0.5 times")
        and "according to line 12 (2 of 5 steps)" in note
    )


def test_samples_consumed_are_batches() -> None:
    (note,) = measure(foreign(samples=[64] * 3, consumed_samples=[64, 128, 200])).notes
    assert note == "x: train.log:12: the log reports 200 consumed samples, but 3 steps with 64 samples each consume 192"


def test_tokens_a_second_of_all_and_of_one() -> None:
    (note,) = measure(foreign(tokens_per_s=[1600.0] * 3, tokens_per_s_per_rank=[100.0, 100.0, 80.0])).notes
    assert note == "x: train.log:12: tokens/s over tokens/s of a rank is 20, but 16 according to line 11 (1 of 3 steps)"
    (note,) = measure(foreign(consumed_tokens=[1000, 2000, 3900], consumed_samples=[10, 20, 30])).notes
    assert (
        note
        == "x: train.log:12: consumed tokens over consumed samples is 130, but 100 according to line 11 (1 of 3 steps)"
    )


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308])
@pytest.mark.parametrize("column", ["seconds", "samples_per_s", "model_flops_per_rank", "mfu", "tokens_per_s_per_rank"])
def test_nonsense_of_the_right_form_breaks_nothing(column: str, value: float) -> None:
    columns = {
        name: [1.0, 2.0, 3.0] for name in ("seconds", "samples_per_s", "model_flops_per_rank", "mfu", "tokens_per_s")
    }
    columns["tokens_per_s_per_rank"] = [1.0, 2.0, 3.0]
    for place in (slice(1, 2), slice(0, 3)):
        changed = {**columns, column: list(columns[column])}
        changed[column][place] = [value] * len(changed[column][place])
        run = on_gpus(foreign(**changed), [GPU], train={"precision": "bf16", "global_batch": 8})
        assert all(note.isprintable() for note in measure(run).notes)
