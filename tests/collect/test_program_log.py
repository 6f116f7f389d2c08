"""Tests of logs of a study's program: hpcbench's events, and the program's own lines with their time stamps."""

from pathlib import Path

import pytest

from hpcbench.collect.program_log import ProgramReader, form_of, read_program
from hpcbench.collect.submission import from_log
from hpcbench.contract.events import End, Evaluation, Start
from hpcbench.contract.program import LogForm, LogLines
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.stamp import format_stamp, strip_stamp
from hpcbench.errors import UserError

START = '{"event": "start", "time": null, "study": "s", "run": "r1", "scheme": "int8", "pairing": "r1", "cell": {}}\n'
RUN = '{"event": "configuration", "run": {"program": {"log": "nanogpt"}, "ranks": 2}}\n'
END = '{"event": "end", "state": "completed", "steps": 3}\n'
OWN = LogLines(line=r"loss is (?P<loss>\S+)", evaluation=r"held out: (?P<loss>\S+)")


def stamped(lines: list[str], begin: float = 1.0, every: float = 0.5) -> bytes:
    """Return lines at equal time intervals."""
    return b"".join(format_stamp(begin + k * every) + line.encode() + b"\n" for k, line in enumerate(lines))


NANOGPT = [f"iter {k}: loss {4 - k}.5000, time {100 + k}.00ms, mfu 1.00%" for k in range(1, 4)]


def log_of(content: bytes, form: LogForm, tmp_path: Path) -> ProgramReader:
    reader = ProgramReader(tmp_path / "log.txt", form)
    reader.feed(content)
    return reader


def test_stamps_are_removed_and_other_lines_stay() -> None:
    assert strip_stamp(format_stamp(12.25) + b"iter 1") == (12.25, b"iter 1")
    assert strip_stamp(b"[rank0]: ValueError") == (None, b"[rank0]: ValueError")


def test_steps_of_a_framework_between_events_of_ours(tmp_path: Path) -> None:
    last = "step 3: train loss 1.5000, val loss 1.7500"
    content = (START + RUN).encode() + stamped([*NANOGPT, last]) + END.encode()
    log = log_of(content, "nanogpt", tmp_path).close()
    assert log.dialect == "nanoGPT" and log.starts == 1
    assert list(log.steps) == [1, 2, 3]
    assert log.steps[2].loss == 2.5 and log.steps[2].seconds == pytest.approx(0.102)
    assert log.steps[2].line == 4
    assert log.planned_steps == 3 and log.final_loss() == 1.75
    assert [type(event) for event in log.events][-2:] == [Evaluation, End]
    assert log.ending.state == "completed" and log.ending.end_line == 7


def test_pieces_of_any_size_give_the_same_log(tmp_path: Path) -> None:
    content = (START + RUN).encode() + stamped(NANOGPT) + END.encode()
    expected = log_of(content, "nanogpt", tmp_path).close()
    reader = ProgramReader(tmp_path / "log.txt", "nanogpt")
    seen = []
    for begin in range(0, len(content), 7):
        reader.feed(content[begin : begin + 7])
        seen.append(len(reader.log.steps))
    last = reader.close()
    assert seen == sorted(seen) and seen[-1] == 3
    assert dict(last.steps) == dict(expected.steps) and last.events == expected.events and last.lines == expected.lines


def test_lines_without_a_number_are_counted_and_timed_as_they_come(tmp_path: Path) -> None:
    lines = ["loss is 4", "something else", "loss is 3", "loss is nan", "held out: 2.5"]
    log = log_of(START.encode() + stamped(lines), OWN, tmp_path).log
    assert [(step.step, step.seconds) for step in log.steps.values()] == [(1, None), (2, 1.0), (3, 0.5)]
    assert log.evaluations == {3: 2.5}
    assert log.diverged_at == 3
    tenth = OWN.changed(every=10)
    again = log_of(START.encode() + stamped(lines), tenth, tmp_path).log
    assert [(step.step, step.seconds) for step in again.steps.values()] == [(10, None), (20, 0.1), (30, 0.05)]


def test_a_log_that_begins_again_contains_the_last_attempt_alone(tmp_path: Path) -> None:
    content = START.encode() + stamped(NANOGPT) + START.encode() + stamped(NANOGPT[:1], 9.0)
    log = log_of(content, "nanogpt", tmp_path).close()
    assert list(log.steps) == [1] and len([e for e in log.events if isinstance(e, Start)]) == 1
    assert "started again" in log.notes[0].why


def test_a_last_line_that_was_cut_is_not_used(tmp_path: Path) -> None:
    content = START.encode() + stamped(["loss is 4.125", "loss is 3.125"])
    assert list(log_of(content[:-4], OWN, tmp_path).close().steps) == [1]


def test_a_loss_that_is_not_a_number_is_noted(tmp_path: Path) -> None:
    log = log_of(START.encode() + stamped(["loss is low"]), OWN, tmp_path).close()
    assert log.steps[1].loss is None
    assert "the value of loss in the line is not a number" in log.notes[0].why


def test_a_log_alone_names_its_dialect(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes((START + RUN).encode() + stamped(NANOGPT) + END.encode())
    run = from_log(path)
    assert (run.id, run.scheme, run.study) == ("r1", "int8", "s")
    assert run.state == "completed" and run.log is not None and len(run.log.steps) == 3
    assert form_of(LoggedSettings.read({"program": {"log": "nobody's"}})) is None and form_of(LoggedSettings()) is None
    assert list(read_program(path, "nanogpt").steps) == [1, 2, 3]


def test_an_invalid_form_in_a_log_is_one_line(tmp_path: Path) -> None:
    form = '{"line": "step (?P<step>.*)", "every": 10}'
    (tmp_path / "log.txt").write_text(START + RUN.replace('"nanogpt"', form) + END)
    with pytest.raises(UserError, match=r"log\.txt: program\.log in the configuration event: .*leave every out"):
        from_log(tmp_path / "log.txt")
