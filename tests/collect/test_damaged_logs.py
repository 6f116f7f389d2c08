"""Tests that bulk and line-by-line parsing of damaged logs agree, and return no number that is not in the log."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_results import Planted, log_lines

from hpcbench.collect import run_log
from hpcbench.collect.bulk import LineShape, shape_of
from hpcbench.collect.run_log import LogReader, RunLog
from hpcbench.contract import log_line
from hpcbench.contract.run_state import resolve_log_state
from hpcbench.contract.step_line import FIELDS, Step

STEPS = 40
LINES = [line.encode() for line in log_lines(Planted("mzhybrid", 1, 0.25, 2.75, 0.5), steps=STEPS, warmup=2)]
WHOLE = b"".join(line + b"\n" for line in LINES)
FIRST = next(i for i, line in enumerate(LINES) if line.startswith(b"step "))
NUMBERS = [
    *(b"nan", b"-inf", b"NAN", b"Infinity", b"iNf", b"1e999", b"-0.0", b"1_0", b".5", b"5.", b"1e", b"+-1", b"1.2.3"),
    *(
        b"0",
        b"-1",
        b"007",
        b"9223372036854775807",
        b"9223372036854775808",
        b"9" * 30,
        b"9" * 31,
        b"0" * 31,
        b"9" * 5000,
    ),
    *(b"1" * 41, b"0." + b"1" * 60, b"\xd9\xa3", b"1\x00", b"", b" 1", b"1 s", b"0x10", b"1\r", b"3/40", b"41/40"),
]
PIECES = [
    *(b"\x00", b"\n", b"\r", b"\r\n", b" ", b"|", b" |", b" | ", b"\t", b"\x0b", b"\x1c", b"\xff\xfe", b"\xe2\x82"),
    *(b"\xc2\xa0", b"\xc2\x85", b"step ", b"step 3/40", b"step 3/40 | loss 1.0 |\n", b"[1,0]<stdout>: ", b"0: "),
    *(b"\x1b[31m", b'{"event": ', b'{"event": "start"}\n', b" | loss 1.0", b" | memory 12.5 GB", b"rank 3: hello\n"),
]
LogLines = list[bytes]
Change = Callable[[LogLines], LogLines]


def read(data: bytes, places: list[int] | None = None) -> RunLog:
    """Read the log in pieces that end at the given positions."""
    reader = LogReader(Path("log.txt"))
    ends = [*sorted(place for place in places or [] if place < len(data)), len(data)]
    for begin, end in zip([0, *ends], ends, strict=False):
        reader.feed(data[begin:end])
    return reader.close()


def read_line_by_line(data: bytes) -> RunLog:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log, "shape_of", lambda raw: None)
        return read(data)


def list_facts(log: RunLog) -> str:
    """List everything that was parsed from a log as text, because NaN equals itself in text."""
    seen = [*log.steps.values(), *log.events, *log.notes, log.lines, log.cut, log.starts, log.steps.last]
    return "\n".join(map(repr, seen))


def with_value(line: bytes, field: int, value: bytes) -> bytes:
    """Return a line with one field changed. Field 0 is the step."""
    fields = line.split(b" | ")
    parts = fields[field % len(fields)].split()
    parts[1:2] = [value]
    fields[field % len(fields)] = b" ".join(parts)
    return b" | ".join(fields)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Draw a change to a log: to one line, to all lines in the same way, or to the order of the lines."""
    column, piece = draw(st.integers(0, 250)), draw(st.sampled_from(PIECES) | st.binary(max_size=3))
    field, value = draw(st.integers(0, 11)), draw(st.sampled_from(NUMBERS))
    at, to = draw(st.integers(0, len(LINES))), draw(st.integers(0, len(LINES)))
    changed = draw(
        st.sampled_from(
            [
                lambda line: line[:column],
                lambda line: line[column:],
                lambda line: line[:column] + piece + line[column:],
                lambda line: line[:column] + piece + line[column + len(piece) :],
                lambda line: with_value(line, field, value),
            ]
        )
    )
    happening: Change = draw(
        st.sampled_from(
            [
                lambda log: [*log[:at], *map(changed, log[at : at + 1]), *log[at + 1 :]],
                lambda log: [*log[:at], *map(changed, log[at:])],
                lambda log: [*log[:to], *log[at : at + 1], *log[to:]],
                lambda log: log[:at] + log[at + 1 :],
                lambda log: log[at:] + log[:at],
                lambda log: log + log,
                lambda log: [line for line in log for _ in range(2)],
                lambda log: log[::2],
            ]
        )
    )
    return happening


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Draw logs with random changes."""
    log = LINES
    for change in draw(st.lists(changes(), max_size=5)):
        log = change(log)
    return b"".join(line + b"\n" for line in log)


@settings(max_examples=300, deadline=None)
@given(logs(), st.lists(st.integers(0, len(WHOLE)), max_size=6))
def test_in_bulk_as_line_by_line(data: bytes, places: list[int]) -> None:
    expected = read_line_by_line(data)
    assert list_facts(read(data)) == list_facts(expected)
    assert list_facts(read(data, places)) == list_facts(expected)


@settings(max_examples=200, deadline=None)
@given(logs())
def test_each_number_is_in_the_line_that_its_record_names(data: bytes) -> None:
    file = data.split(b"\n")
    for record in read(data).steps.values():
        raw = file[record.line - 1].decode("utf-8", "replace").rstrip()
        head = re.match(r"\s*step\s+(\d+)/(\d+) \|", raw)
        assert head and (int(head[1]), int(head[2])) == (record.step, record.steps)
        given = {parts[0]: parts[1:] for part in raw.split(" | ") if (parts := part.removesuffix("|").split())}
        for name, (attribute, units) in FIELDS.items():
            value = getattr(record, attribute)
            assert (value is None) == (name not in given)
            if value is not None:
                number, *unit = given[name]
                assert repr(float(value)) == repr(float(number) * units["".join(unit)])


@settings(max_examples=200, deadline=None)
@given(logs())
def test_every_damaged_log_has_a_state(data: bytes) -> None:
    log = read(data)
    assert all(record.steps is not None and 1 <= record.step <= record.steps for record in log.steps.values())
    assert resolve_log_state(log.ending).state in ("completed", "incomplete", "unknown", "nan")
    losses = [record.loss for record in log.steps.values() if record.loss is not None]
    assert (log.diverged_at is None) == all(map(math.isfinite, losses))
    assert not set(log.missing_steps()) & set(log.steps)


def test_step_lines_of_one_shape_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[int] = []
    parse = log_line.parse

    def counted(text: str, line: int) -> object:
        alone.append(line)
        return parse(text, line)

    monkeypatch.setattr(log_line, "parse", counted)
    log = read(WHOLE.replace(b"\n", b"\r\n"))
    assert len(log.steps) == STEPS
    # All but the first: events before and after them contain no shape.
    assert alone == [i + 1 for i in range(len(LINES)) if not FIRST < i < FIRST + STEPS]


def test_a_shape_that_lines_no_longer_have_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    def noted(raw: bytes) -> LineShape | None:
        taken.append(raw)
        return shape_of(raw)

    monkeypatch.setattr(run_log, "shape_of", noted)
    old = [b"step %d/90 | loss 1.5 |\n" % step for step in range(1, 41)]
    new = [b"step %d/90 | loss 1.5 | skipped 0 |\n" % step for step in range(41, 91)]
    reader = LogReader(Path("log.txt"))
    for chunk in (old, new[:10], new[10:]):
        reader.feed(b"".join(chunk))
    assert taken == [old[0][:-1], new[10][:-1]]
    assert list(reader.close().steps) == list(range(1, 91))


@pytest.mark.parametrize("filler", [b"x", b" ", b"9", b"step ", b"step 3/40 | loss ", b" | loss 1.0"])
def test_a_line_of_ten_megabytes(filler: bytes) -> None:
    at = WHOLE.index(b"step  5/40")
    for head in (b"", b"step ", b"step  5/40 | loss 1"):
        giant = head + filler * (10_000_000 // len(filler)) + b"\n"
        log = read(WHOLE[:at] + giant + WHOLE[at:])
        assert list(log.steps) == list(range(1, STEPS + 1))
        assert log.steps[5].line == FIRST + 6
        assert all(len(note.why) < 400 for note in log.notes)


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 30])
def test_a_number_beyond_64_bits_is_none(number: str) -> None:
    log = read(WHOLE.replace(b"message 1000000 B", b"message %s B" % number.encode()))
    assert not log.steps
    assert "does not fit in 64 bits" in log.notes[0].why
    first_log = read(WHOLE.replace(b"message 1000000 B", b"message %s B" % number.encode(), 1))
    assert list(first_log.steps) == list(range(2, STEPS + 1))
    assert first_log.notes[0].line == FIRST + 1


def test_a_record_is_of_numbers_that_are_exact() -> None:
    log = read(WHOLE.replace(b"message 1000000 B", b"message 9223372036854775807 B"))
    assert log.steps.column("message_bytes") == [2**63 - 1] * STEPS
    assert isinstance(log.steps[7], Step) and log.steps[7].message_bytes == 2**63 - 1
