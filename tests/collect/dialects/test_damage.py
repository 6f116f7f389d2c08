"""Tests of damaged and hostile logs: no crash, and no number that is not in the file."""

import io
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mangling import BY_LINE_END, DIALECT, LOGS, TRUTH, lines_of, quantities, read_as, within

from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.prefix import plain
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.dialects.texts import LONGEST_LINE, texts
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.events import Evaluation
from hpcbench.contract.run_state import resolve_log_state
from hpcbench.contract.step_line import Step

SUMS = {"skipped", "nan_steps"}
COUNTED = {dialect.name for dialect in DIALECTS if any(line.counted for line in dialect.lines)}
"""Dialects whose steps the tests count."""
SCALES = (1, 1e-3, 1e-2, 1e12, 2.0**30, *(10.0**n for n in (3, 6, 9, 12, 15, 18, 21)))


@pytest.mark.parametrize("name", LOGS)
def test_a_log_cut_at_any_byte_gives_no_wrong_number(name: str) -> None:
    data = LOGS[name].replace(b"[rank1]", b"[rank0]")  # otherwise lines of rank 0 could replace those of rank 1
    truth = quantities(read_as(DIALECT[name], data))
    for length in range(0, len(data), 3):
        read = quantities(read_as(DIALECT[name], data[:length]))
        assert within(read, truth), f"cut at byte {length}"


@pytest.mark.parametrize("name", sorted(set(LOGS) - BY_LINE_END))
def test_a_line_that_was_cut_is_not_used(name: str) -> None:
    lines = [line.replace("[rank1]", "[rank0]") for line in lines_of(name)]
    truth = quantities(read_as(DIALECT[name], "\n".join([*lines, ""]).encode()))
    at = max(i for i, line in enumerate(lines) if DIALECT[name].probes(plain(line)))
    for length in range(0, len(lines[at]), 5):
        killed = [*lines[:at], lines[at][:length], "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 10:00:00 ***", ""]
        log = read_as(DIALECT[name], "\n".join(killed).encode())
        assert within(quantities(log), truth), f"cut at {length}"


@st.composite
def mutants(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a log with changed bytes, and with lines cut, repeated, swapped, joined, or mixed with lines of another
    log."""
    name = draw(st.sampled_from(sorted(LOGS)))
    lines = LOGS[name].split(b"\n")
    for _ in range(draw(st.integers(0, 4))):
        i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["cut", "double", "swap", "glue", "mix", "prefix", "wrap"])):
            case "cut":
                lines[i] = lines[i][: draw(st.integers(0, len(lines[i])))]
            case "double":
                lines.insert(j, lines[i])
            case "swap":
                lines[i], lines[j] = lines[j], lines[i]
            case "glue":
                lines[i] += lines.pop(j) if len(lines) > 1 and i < j else b""
            case "mix":
                lines[i:i] = LOGS[draw(st.sampled_from(sorted(LOGS)))].split(b"\n")[:6]
            case "prefix":
                lines[i] = draw(st.sampled_from([b"[1,7]<stdout>:", b"5: ", b"[rank0]:", b"\x1b[1m"])) + lines[i]
            case "wrap":
                k = draw(st.integers(0, len(lines[i])))
                lines[i : i + 1] = [lines[i][:k], lines[i][k:]]
    data = bytearray(draw(st.sampled_from([b"\n", b"\r\n"])).join(lines))
    for _ in range(draw(st.integers(0, 6)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(
            st.one_of(st.integers(0, 255), st.sampled_from(b"\x00\x1b\xff|:"))
        )
    return name, bytes(data)


def printed(data: bytes) -> list[float]:
    """Return all numbers that occur in a file, in its lines, or in two to thirteen consecutive lines when joined."""
    lines = [text.text or "" for text in texts(io.BytesIO(data))]
    number_texts = {"0"}
    for join in ("\n", ""):
        number_texts.update(
            word.replace(",", "") for word in re.findall(r"[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?", join.join(lines))
        )
    # A piece may begin with its rank.
    bare = "".join(re.sub(r"^(?:\[\S*\]\S*:? ?|\d+: )+", "", line) for line in lines)
    number_texts.update(word.replace(",", "") for word in re.findall(r"[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?", bare))
    numbers = []
    for word in number_texts:
        try:
            numbers.append(float(word.rstrip(".,")))
        except ValueError:
            numbers += [float(part) for part in re.findall(r"[0-9]+(?:\.[0-9]+)?", word)]
    return numbers


def is_printed(value: float, numbers: list[float]) -> bool:
    if not math.isfinite(value):
        return True
    slack = 1e-9 * abs(value) + 0.5 * (value >= 2**20)  # bytes are rounded
    return any(abs(abs(value) - number * scale) <= slack for number in numbers for scale in SCALES)


def check(log: RunLog, data: bytes) -> None:
    numbers = printed(data)
    lines = data.count(b"\n") + 1
    computed = ("line", *SUMS, *(["step"] if log.dialect in COUNTED else []))
    for step, record in log.steps.items():
        assert record.step == step and 1 <= record.line <= lines
        for name, value in vars(record).items():
            if value is not None and name not in computed:
                assert is_printed(value, numbers), (name, value)
    for event in log.events:
        if isinstance(event, Evaluation):
            assert event.loss is not None and is_printed(event.loss, numbers)
    resolve_log_state(log.ending)
    log.final_loss()
    log.missing_steps()


@settings(max_examples=400, deadline=None)
@given(mutants())
def test_mutated_logs_invent_nothing(mutant: tuple[str, bytes]) -> None:
    name, data = mutant
    check(read_as(DIALECT[name], data), data)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(DIALECTS))
def test_any_bytes_are_a_log_without_steps(data: bytes, dialect: Dialect) -> None:
    log = read_as(dialect, data)
    assert not log.steps and resolve_log_state(log.ending).state == "unknown"


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "-1", "9" * 18, "9" * 29, "1" + ",999" * 5, "nan", "inf", "1e-400", "0"]
)
@pytest.mark.parametrize("name", LOGS)
def test_numbers_of_any_size_are_numbers_or_nothing(name: str, number: str) -> None:
    lines = []
    for line in map(plain, lines_of(name)):
        heads = DIALECT[name].heads(line)
        head_end = heads[0][1].end() if heads else 0
        lines.append(line[:head_end] + re.sub(r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+][0-9]+)?", number, line[head_end:]))
    log = read_as(DIALECT[name], "\n".join([*lines, ""]).encode())
    for record in log.steps.values():
        assert all(abs(value) < 2**63 for value in vars(record).values() if isinstance(value, int))
    resolve_log_state(log.ending)


def test_the_check_detects_a_wrong_number() -> None:
    log = RunLog(Path("log.txt"))
    log.steps.add(Step(3, line=1, loss=4.25))
    with pytest.raises(AssertionError):
        check(log, b"step 3 loss 4.52\n")
    log.steps.clear()
    log.events.append(Evaluation(line=1, split="valid", loss=4.25))
    with pytest.raises(AssertionError):
        check(log, b"step 3 loss 4.52\n")


HOSTILE = {
    "one long line": "x" * 10_000_000,
    "heads alone": "iteration 1/9 |" * 60_000,
    "spaces": "iteration " + " " * 900_000,
    "bars": "iteration 1/ 9 |" + "|" * 900_000,
    "fields that never end": " samples/sec: 1 | iteration 1/ 9 |" + " a: 1 |" * 120_000,
    "values that never end": "steps: 1 loss: " + "1" * 900_000,
    "thousands": "step:  1  loss: " + "1,111" * 180_000,
    "brackets": "step=1, skipped=1, lr=[" + "[1, " * 200_000,
    "prefixes": "[rank0]:" * 100_000 + "iter 1: loss 1",
    "colours": "\x1b[31m" * 150_000 + "\x1b[" + "1;" * 100_000,
    "evaluations": " validation loss at iteration 1 " + "| a value: 1 " * 70_000,
    "open lines of many ranks": "\n".join(f"{rank}: iteration 1/ 9 | a: " for rank in range(20_000)),
    "pieces that never end": "iteration 1/ 9 | lm loss: \n" + "| a: 1 |\n" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_hostile_lines_terminate(name: str, dialect: Dialect) -> None:
    data = HOSTILE[name].encode() + b"\n"
    log = read_as(dialect, data)
    assert log.lines == data.count(b"\n")
    assert not log.steps


def test_a_line_of_many_megabytes_is_skipped_with_a_note() -> None:
    before, *after = LOGS["maxtext"].splitlines(keepends=True)
    log = read_as(DIALECT["maxtext"], before + b"y" * (3 * LONGEST_LINE) + b"\n" + b"".join(after))
    assert quantities(log) == TRUTH["maxtext"]
    assert [(note.line, note.why) for note in log.notes] == [(2, "a line of more than 4 MiB was skipped")]
    assert log.steps[0].line == 5
