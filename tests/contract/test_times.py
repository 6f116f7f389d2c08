"""Tests of times in status files and logs, and of durations."""

import pytest

from hpcbench.contract.times import measure_seconds, parse_time


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-11-21T06:30:00Z", "2026-11-21T06:31:00.500Z", 60.5),
        ("2026-11-21T06:30:00Z", "2026-11-21T07:30:00+01:00", 0.0),
        ("2026-11-21T06:30:00", "2026-11-21T06:30:01Z", 1.0),
        ("2026-11-21T06:30:10Z", "2026-11-21T06:30:00Z", 0.0),
        ("yesterday", "2026-11-21T06:30:00Z", None),
        ("2026-11-21T06:30:00Z", None, None),
    ],
)
def test_seconds_between(start: str, end: str | None, seconds: float | None) -> None:
    assert measure_seconds(start, end) == seconds


def test_no_moment() -> None:
    assert parse_time(None) is None and parse_time("") is None and parse_time("2026-13-01T00:00:00Z") is None
