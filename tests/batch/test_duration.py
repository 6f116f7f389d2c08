"""Tests of durations: each scheduler's time format, and refusal of formats that two schedulers parse differently."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.batch.scripts.duration import Duration


@pytest.mark.parametrize(
    ("text", "seconds", "lsf", "slurm"),
    [
        ("6h30m", 23400, "6:30", "06:30:00"),
        ("6:30:00", 23400, "6:30", "06:30:00"),
        ("90s", 90, "0:02", "00:01:30"),
        ("1h30m", 5400, "1:30", "01:30:00"),
        ("90m", 5400, "1:30", "01:30:00"),
        ("90min", 5400, "1:30", "01:30:00"),
        ("25h", 90000, "25:00", "1-01:00:00"),
        ("1d 1h", 90000, "25:00", "1-01:00:00"),
        ("1-01:00:00", 90000, "25:00", "1-01:00:00"),
        ("0:59:59", 3599, "1:00", "00:59:59"),
        ("59m59s", 3599, "1:00", "00:59:59"),
        ("1s", 1, "0:01", "00:00:01"),
        ("24h", 86400, "24:00", "1-00:00:00"),
    ],
)
def test_every_scheduler_gets_its_own_spelling(text: str, seconds: int, lsf: str, slurm: str) -> None:
    duration = Duration.parse(text)
    assert (duration.seconds, duration.lsf(), duration.slurm()) == (seconds, lsf, slurm)
    assert duration.flux() == f"{seconds}s"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1.5])
def test_a_duration_is_whole_seconds_above_zero(seconds: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Duration(seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("60:30", 3630),
        ("0:01", 1),
        ("6:30:00", 23400),
        ("1-00", 86400),
        ("2-12", 216000),
        ("1-01:30", 91800),
        ("1-00:00:00", 86400),
        ("5-23:59:59", 518399),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
    ],
)
def test_limits_are_read_as_slurm_means_them(text: str, seconds: int | None) -> None:
    duration = Duration.of_slurm(text)
    assert (duration and duration.seconds) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("1:30", 5400), ("1:30/host", 5400), ("90/host1", 5400), ("1440.0 min", 86400),
                          ("30.0 min of host1", 1800), ("0:02", 120)],
)  # fmt: skip
def test_limits_are_read_as_lsf_means_them(text: str, seconds: int) -> None:
    assert Duration.of_lsf(text).seconds == seconds


@pytest.mark.parametrize("text", ["", "1h", "0", "00:00", "1:2:3:4", "1-", "-5", "1-2-3", "x", "1:x"])
def test_forms_that_schedulers_never_print_are_refused(text: str) -> None:
    for read in (Duration.of_slurm, Duration.of_lsf):
        with pytest.raises(ValueError):
            read(text)


def test_two_fields_are_refused_with_both_readings() -> None:
    with pytest.raises(ValueError, match=r"1 hours 30 minutes.*1 minutes 30 seconds"):
        Duration.parse("1:30")


@pytest.mark.parametrize(
    "text",
    ["", " ", "0m", "0:00:00", "-5m", "90", "1.5h", "nan", "inf", "1h30", "30m1h", "1:2:3:4", "1:60:00", "one hour",
     "h", "9" * 20 + "h", "1:30/host"],
)  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Duration.parse(text)


@given(st.integers(1, 10**7))
def test_spellings_read_back(seconds: int) -> None:
    duration = Duration(seconds)
    assert Duration.parse(str(duration)) == duration
    assert Duration.parse(duration.slurm()) == Duration.of_slurm(duration.slurm()) == duration
    assert duration.flux() == f"{seconds}s"
    assert 0 <= Duration.of_lsf(duration.lsf()).seconds - seconds < 60
    match = re.fullmatch(r"(\d+):(\d\d)", duration.lsf())
    assert match is not None
    minutes = 60 * int(match[1]) + int(match[2])
    assert 0 <= 60 * minutes - seconds < 60  # rounded up to the next minute
