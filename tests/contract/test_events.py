"""Tests of log events: the bytes of each line are stable, and logs of every version can be read."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.contract import events, step_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import (
    KINDS,
    ChannelTraffic,
    End,
    Environment,
    Host,
    MemoryUse,
    PhaseTimes,
    Rank,
    TrafficTotals,
    UnknownEvent,
)
from hpcbench.contract.log_line import parse
from hpcbench.contract.step_line import Step

LINES = Path(__file__).with_name("log_lines.txt").read_text().splitlines()
"""Log lines written by version 0.1.0."""
EVENTS = [line for line in LINES if line.startswith("{")]


@pytest.mark.parametrize("line", LINES)
def test_the_bytes_of_a_line_stay_what_they_are(line: str) -> None:
    event = parse(line, 3)
    assert event is not None and not isinstance(event, DamagedLine | UnknownEvent) and event.line == 3
    assert (step_line.format_step(event) if isinstance(event, Step) else event.to_line()) == line


def test_there_is_a_line_of_each_event() -> None:
    assert {json.loads(line)["event"] for line in EVENTS} == set(KINDS)


@pytest.mark.parametrize("line", EVENTS)
def test_each_class_reads_its_own_line_alone(line: str) -> None:
    own_kind = KINDS[json.loads(line)["event"]]
    assert line.startswith(own_kind.begin())
    for kind in KINDS.values():
        event = kind.from_line(line)
        assert (event is None) == (kind is not own_kind)
        assert kind is not own_kind or event == events.parse_event(line, 1)
    assert all(own_kind.from_line(line[:cut]) is None for cut in range(len(line)))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_event_that_says_nothing_is_read(kind: type[events.Event]) -> None:
    """Older versions wrote fewer fields."""
    event = events.parse_event(json.dumps({"event": kind.NAME}), 1)
    assert type(event) is kind
    values = {attribute.name: getattr(event, attribute.name) for attribute in fields(event)}
    assert not any(value for name, value in values.items() if name not in ("raw", "line"))


def test_a_log_without_the_bytes_that_were_encoded_is_read() -> None:
    totals = TrafficTotals.from_line(next(line for line in EVENTS if line.startswith(TrafficTotals.begin())))
    assert totals is not None and totals.channels
    data = json.loads(totals.to_line())
    for channel in data["channels"]:
        del channel["coded_bytes"]
    old = TrafficTotals.from_line(json.dumps(data))
    assert old is not None
    assert old.channels == tuple(replace(channel, coded_bytes=None) for channel in totals.channels)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(EVENTS), st.data())
def test_a_field_that_is_not_of_its_type_counts_as_missing(line: str, data: st.DataObject) -> None:
    content = json.loads(line)
    key = data.draw(st.sampled_from([key for key in content if key != "event"]))
    content[key] = data.draw(ODD)
    event, truth = parse(json.dumps(content), 1), parse(line, 1)
    assert isinstance(event, events.Event) and isinstance(truth, events.Event)
    assert event.raw.keys() == content.keys()
    for attribute in fields(truth):
        if attribute.name not in (key, "raw"):
            assert getattr(event, attribute.name) == getattr(truth, attribute.name)
    value = getattr(event, key)
    if isinstance(content[key], str | bool):
        assert value is None or value == content[key]
    json.loads(json.dumps(event.to_json()))


def test_whole_numbers_are_exact_and_have_64_bits() -> None:
    def read(value: str) -> int | None:
        event = MemoryUse.from_line(f'{{"event": "memory", "host_bytes": {value}}}')
        assert event is not None
        return event.host_bytes

    assert read(str(2**63 - 1)) == 2**63 - 1
    assert read("5.0") == 5
    for value in (str(2**63), "true", "5.5", '"5"', "NaN", "1e400"):
        assert read(value) is None, value


def test_an_event_of_another_version_keeps_its_name() -> None:
    event = events.parse_event('{"event": "weather", "wind": 3}', 7)
    assert isinstance(event, UnknownEvent)
    assert (event.name, event.line, event.raw["wind"]) == ("weather", 7, 3)


def test_what_no_field_declares_is_kept_as_it_was_read_and_never_written() -> None:
    event = Environment.from_line('{"event": "environment", "weather": "fair", "hosts": [{"host": "n1", "rack": 7}]}')
    assert event is not None and event.hosts
    assert (event.raw["weather"], event.hosts[0].raw["rack"]) == ("fair", 7)
    assert "fair" not in event.to_line() and "rack" not in event.to_line()


def test_what_is_to_be_written_must_be_declared() -> None:
    assert Host.declared({"host": "n1", "kernel": "6"}).to_json() == {"host": "n1", "kernel": "6"}
    with pytest.raises(TypeError, match="rack"):
        Host.declared({"host": "n1", "kernel": "6", "rack": 7})
    with pytest.raises(TypeError, match="kernel"):
        Host.declared({"host": "n1"})
    gpu = {"number": 0, "uuid": None, "pci": None, "visible": 1, "peers": []}
    rank = {"rank": 0, "local_rank": 0, "host": "n1", "pid": 7, "cores": [0], "core_ranges": "0", "host_cores": 1}
    rank |= {"numa": None, "device": "cuda:0 X", "gpu": gpu, "visible": {}, "nics": {}, "threads": 1}
    assert list(Rank.declared(rank).to_json()) == list(rank)
    with pytest.raises(TypeError, match="memory"):
        Rank.declared({**rank, "gpu": {**gpu, "memory": 1}})


def test_the_names_that_a_class_lists_are_fields_of_it() -> None:
    assert {*ChannelTraffic.COUNTS, *ChannelTraffic.SECONDS} <= {attribute.name for attribute in fields(ChannelTraffic)}
    assert set(MemoryUse.LASTING) <= {attribute.name for attribute in fields(MemoryUse)}


def test_an_end_is_itself_again() -> None:
    end = End(time="2026-11-21T06:31:00.123Z", state="stopped", steps=3, seconds=1.5, reason="told to")
    assert End.from_line(end.to_line(), 9) == end
    assert PhaseTimes.from_line(end.to_line()) is None
