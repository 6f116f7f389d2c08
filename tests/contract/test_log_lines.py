"""Tests of the grammar of step lines and events."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.contract import step_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Evaluation
from hpcbench.contract.log_line import parse
from hpcbench.contract.step_line import Step
from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_integer, get_number

LINE = (
    "step    3/120 | loss 5.551234 | time 0.3120 s | samples/s 25.64 | model 3.205 GFLOPS/rank"
    " | hardware 4.000 GFLOPS/rank | lr 1.000E-04 | grad-norm 1.2340E+00 | message 1234567 B | wire 123456 B"
    " | skipped 2 |"
)
RECORD = Step(
    line=7,
    step=3,
    steps=120,
    loss=5.551234,
    seconds=0.312,
    samples_per_s=25.64,
    model_flops_per_rank=3.205e9,
    hardware_flops_per_rank=4e9,
    lr=1e-4,
    gradient_norm=1.234,
    message_bytes=1234567,
    wire_bytes=123456,
    skipped=2,
)


def test_a_line_gives_its_numbers() -> None:
    assert parse(LINE, 7) == RECORD


def test_line_end_of_another_system() -> None:
    assert parse(LINE + "\r", 7) == RECORD


@pytest.mark.parametrize("length", range(len(LINE)))
def test_a_line_cut_anywhere_gives_no_wrong_number(length: int) -> None:
    parsed = parse(LINE[:length], 7)
    if isinstance(parsed, Step):
        # Cut behind a bar: the fields before it are complete, the others are absent.
        assert LINE[:length].rstrip().endswith(" |")
        present = {name: value for name, value in vars(parsed).items() if value is not None}
        assert present.items() <= vars(RECORD).items()
        assert parsed.skipped is None
    else:
        assert parsed is None or isinstance(parsed, DamagedLine)


@given(
    st.integers(1, 10**6),
    st.floats(allow_nan=False, allow_infinity=True, width=32),
    st.floats(1e-4, 1e5),
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    st.integers(0, 10**6),
)
def test_what_the_worker_writes_is_read_back(
    step: int, loss: float, seconds: float, message: int, wire: int, skipped: int
) -> None:
    written = Step(
        step=step,
        steps=10**6,
        loss=loss,
        seconds=seconds,
        samples_per_s=8 / seconds,
        model_flops_per_rank=1e9 / seconds,
        hardware_flops_per_rank=2e9 / seconds,
        lr=1e-3,
        gradient_norm=loss,
        message_bytes=message,
        wire_bytes=wire,
        skipped=skipped,
    )
    parsed = parse(step_line.format_step(written), 1)
    assert isinstance(parsed, Step)
    assert (parsed.step, parsed.steps, parsed.message_bytes, parsed.wire_bytes) == (step, 10**6, message, wire)
    assert parsed.skipped == skipped
    assert parsed.loss == float(f"{loss:.6f}")
    assert parsed.seconds is not None and abs(parsed.seconds - seconds) <= 0.5001e-4
    assert parsed.model_flops_per_rank is not None
    assert parsed.model_flops_per_rank == pytest.approx(1e9 / seconds, abs=0.501e6)


def test_a_step_without_a_number_that_each_step_has_is_not_written() -> None:
    with pytest.raises(ValueError, match="step 3 has no seconds"):
        step_line.format_step(replace(RECORD, seconds=None))


def test_a_loss_that_is_no_number_is_a_value() -> None:
    parsed = parse(LINE.replace("5.551234", "nan"), 1)
    assert isinstance(parsed, Step)
    assert parsed.loss is not None and math.isnan(parsed.loss)
    parsed = parse(LINE.replace("5.551234", "-inf"), 1)
    assert isinstance(parsed, Step)
    assert parsed.loss == -math.inf


def test_a_step_that_diverges_is_read_as_the_worker_writes_it() -> None:
    # Python prints NAN with the format E, and nan with f.
    for value in (math.nan, math.inf):
        parsed = parse(step_line.format_step(replace(RECORD, loss=value, gradient_norm=value)), 1)
        assert isinstance(parsed, Step)
        assert repr(parsed.loss) == repr(parsed.gradient_norm) == repr(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("5.551234", "5.55x"),
        ("5.551234", "5_5.1"),
        ("5.551234", "٣.5"),
        ("5.551234", "5.55Warning: step 2"),
        ("0.3120 s", "0.3120"),
        ("0.3120 s", "0.3120 h"),
        ("3.205 GFLOPS/rank", "3.205 GB"),
        ("1234567 B", "1234567 KB"),
        ("1234567 B", "-5 B"),
        ("123456 B", "1.5 B"),
        ("| lr", "| loss 4.0 | lr"),
        ("   3/120", " 121/120"),
        ("   3/120", " 0/120"),
        ("skipped 2", "skipped 2 times over"),
    ],
)
def test_a_damaged_line_gives_nothing(old: str, new: str) -> None:
    assert old in LINE
    assert isinstance(parse(LINE.replace(old, new, 1), 1), DamagedLine)


def test_units_scale() -> None:
    parsed = parse("step 1/2 | time 250 ms | model 1.5 TFLOPS/GPU |", 1)
    assert isinstance(parsed, Step)
    assert (parsed.seconds, parsed.model_flops_per_rank, parsed.loss) == (0.25, 1.5e12, None)


def test_an_unknown_field_does_no_harm() -> None:
    assert parse(LINE.replace("| lr", "| memory 12.5 GB | lr"), 7) == RECORD


@pytest.mark.parametrize(
    "line", ["", "steps 3/4 | loss 1 |", "step 3 of 4", "[1] hello", "{", "stepping on", "step 1/2 done", "x" + LINE]
)
def test_other_lines_are_not_ours(line: str) -> None:
    assert parse(line, 1) is None


def test_events() -> None:
    parsed = parse('{"event": "evaluation", "step": 3, "loss": NaN}', 4)
    assert isinstance(parsed, Evaluation)
    assert (parsed.line, parsed.name, parsed.step) == (4, "evaluation", 3)
    assert parsed.loss is not None and math.isnan(parsed.loss)


@pytest.mark.parametrize(
    "line",
    ['{"event": "eval', '{"event": 3}', '{"event": null}', '{"event": ' + "[" * 100_000, '{"event": "a"} x',
     '{"event": "a", "n": ' + "9" * 5000 + "}"],
)  # fmt: skip
def test_a_damaged_event_gives_nothing(line: str) -> None:
    assert isinstance(parse(line, 1), DamagedLine)


def test_numbers_are_taken_from_numbers_alone() -> None:
    data = {"a": {"b": 3, "c": True, "d": "4", "e": 10**400, "f": 2.5}}
    assert get_number(data, "a", "b") == 3.0
    assert get_number(data, "a", "c") is None
    assert get_number(data, "a", "d") is None
    assert get_number(data, "a", "e") == math.inf
    assert get_number(data, "x", "b") is None
    assert get_integer(data, "a", "b") == 3
    assert get_integer(data, "a", "f") is None
    assert get_integer(data, "a", "e") is None


def test_printable_tames_control_characters() -> None:
    assert make_printable("a\x1b[31mb\n c\x00") == "a [31mb c"
    assert len(make_printable("y" * 10_000, 50)) == 50
