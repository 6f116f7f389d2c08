"""Tests of log files: complete, cut, damaged, and mixed with the lines of other programs."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_results import Planted, log_lines

from hpcbench.collect import run_log
from hpcbench.collect.run_log import LogReader, RunLog
from hpcbench.collect.submission import from_log
from hpcbench.contract.run_state import resolve_log_state
from hpcbench.errors import UserError

RUN = Planted("mzhybrid", 1, 0.25, 2.75, 0.5)
LINES = log_lines(RUN, steps=6, warmup=2)
WHOLE = "".join(line + "\n" for line in LINES).encode()


def of(data: bytes, chunk: int = 1 << 20) -> RunLog:
    reader = LogReader(Path("log.txt"))
    for i in range(0, len(data), chunk):
        reader.feed(data[i : i + chunk])
    return reader.close()


TRUTH = of(WHOLE)


def test_a_complete_log() -> None:
    assert list(TRUTH.steps) == [1, 2, 3, 4, 5, 6]
    assert [event.name for event in TRUTH.events] == [
        "start", "environment", "configuration", "traffic", "memory", "evaluation", "end",
    ]  # fmt: skip
    assert TRUTH.final_loss() == 2.75
    assert TRUTH.steps[4].line == 7
    assert TRUTH.where(7) == "log.txt:7"
    assert not TRUTH.cut and not TRUTH.notes
    assert resolve_log_state(TRUTH.ending).state == "completed"


def test_cut_at_every_byte_nothing_is_guessed() -> None:
    for length in range(len(WHOLE)):
        log = of(WHOLE[:length])
        for step, record in log.steps.items():
            assert record == TRUTH.steps[step], f"cut at byte {length}"
        for event in log.events:
            assert event in TRUTH.events, f"cut at byte {length}"
        assert resolve_log_state(log.ending).state in ("incomplete", "unknown"), f"cut at byte {length}"
        complete_lines = WHOLE[:length].count(b"\n")
        assert len(log.steps) + len(log.events) == complete_lines, f"cut at byte {length}"


def test_a_cut_line_is_noted() -> None:
    log = of(WHOLE[: WHOLE.index(b"step 4/6") + 30])
    assert log.cut
    assert log.notes[-1].line == 7
    verdict = resolve_log_state(log.ending)
    assert (verdict.state, verdict.where) == ("incomplete", "log.txt:7")
    assert "after step 3 of 6, with a truncated last line" in verdict.reason


def test_a_cut_line_followed_by_the_launcher_is_noted() -> None:
    cut = WHOLE[: WHOLE.index(b"step 4/6") + 30]
    log = of(cut + b"\n\n=====\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n")
    assert log.cut
    assert list(log.steps) == [1, 2, 3]


@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_pieces_make_no_difference(chunk: int) -> None:
    assert of(WHOLE, chunk) == TRUTH


def test_other_line_ends_and_foreign_lines() -> None:
    noise = b"\x00\xff\xfe garbage\r\nWARNING: x | y |\n\n\x1b[31mred\x1b[0m\n"
    mixed = noise + WHOLE.replace(b"\n", b"\r\n" + noise)
    log = of(mixed)
    assert [(r.step, r.loss, r.seconds) for r in log.steps.values()] == [
        (r.step, r.loss, r.seconds) for r in TRUTH.steps.values()
    ]
    assert log.final_loss() == 2.75
    assert log.steps[1].line == 5 + 3 * 5


def test_a_huge_line_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "LONGEST_LINE", 5000)
    at = WHOLE.index(b"step 4/6")
    for chunk in (100, 1 << 20):
        log = of(WHOLE[:at] + b"x" * 20_000 + b"\n" + WHOLE[at:], chunk)
        assert list(log.steps) == [1, 2, 3, 4, 5, 6]
        assert log.steps[4].line == 8


def test_a_repeated_step() -> None:
    at = WHOLE.index(b"step 4/6")
    again = LINES[3 + 2].replace("loss 4", "loss 9").encode() + b"\n"
    log = of(WHOLE[:at] + again + WHOLE[at:])
    assert log.steps[3] == TRUTH.steps[3]
    assert "step 3 is also in line 6" in log.notes[0].why


def test_a_run_that_began_again_counts_from_there() -> None:
    log = of(WHOLE[: WHOLE.index(b"step 4/6")] + WHOLE)
    assert list(log.steps) == [1, 2, 3, 4, 5, 6]
    assert log.steps[1].line == 10
    assert "started again" in log.notes[0].why


def test_missing_steps_are_named() -> None:
    lines = [line for line in LINES if not line.startswith(("step 2/", "step 5/"))]
    assert of("\n".join([*lines, ""]).encode()).missing_steps() == [2, 5]


def test_a_loss_of_an_earlier_evaluation_is_not_the_final_one() -> None:
    log = of(WHOLE.replace(b'"evaluation", "step": 6', b'"evaluation", "step": 4'))
    assert log.final_loss() is None


def test_an_evaluation_after_an_unknown_step_is_not_the_final_one() -> None:
    log = of(b'{"event": "start"}\n{"event": "evaluation", "split": "valid", "loss": 2.0}\n')
    assert log.planned_steps is None and log.final_loss() is None and log.evaluations == {}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes_never_crash(flips: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for position, byte in flips:
        data[position] = byte
    log = of(bytes(data))
    assert all(record.steps is not None and 1 <= record.step <= record.steps for record in log.steps.values())
    resolve_log_state(log.ending)
    log.final_loss()
    log.missing_steps()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4000))
def test_any_bytes_are_a_log_without_runs(data: bytes) -> None:
    log = of(data)
    assert not log.steps and not log.events


def test_lines_of_another_rank_in_between() -> None:
    text = WHOLE.replace(b" | lr", b"\n[rank 3] hello\n | lr", 1)
    log = of(text)
    assert list(log.steps) == [2, 3, 4, 5, 6]
    assert log.missing_steps() == [1]


def test_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        run_log.read(tmp_path / "none.txt")
    with pytest.raises(UserError, match="is a directory: give a log file"):
        run_log.read(tmp_path)
    with pytest.raises(UserError, match="not a regular file"):
        run_log.read(Path("/dev/null"))


@pytest.mark.parametrize(
    ("compress", "command"), [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")]
)
def test_a_compressed_log_is_named(tmp_path: Path, compress: Callable[[bytes], bytes], command: str) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(compress(b"step 1 | loss 2.0\n" * 100))
    with pytest.raises(UserError, match=f"log.txt: is compressed: decompress the file with {command}"):
        from_log(path)
