"""Tests that runs are not counted as measurements if two scripts claimed the job's directory at the same time."""

import json
from pathlib import Path

import pytest

from hpcbench.contract.claim import close_claim, find_double_claim, read_claims
from hpcbench.contract.ending import read_ending
from hpcbench.contract.mark import Mark
from hpcbench.contract.run_state import resolve_run
from hpcbench.contract.state import JobSummary, State

DAY = "2026-01-01T"


def claim(job: Path, number: int, start: int, end: int | None) -> None:
    """Write a claim that lasts from hour `start` to hour `end`, where None means that no end was recorded."""
    place = job / "claims"
    place.mkdir(parents=True, exist_ok=True)
    content = {"holder": str(number + 6), "process": "1 2 b h", "name": "n", "start": f"{DAY}{start:02d}:00:00Z"}
    (place / str(number)).write_text(json.dumps(content) + "\n", encoding="utf-8")
    if end is not None:
        (place / f"{number}.end").write_text(f"{DAY}{end:02d}:00:00Z\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("claims", "run", "two"),
    [
        ([(1, 9)], (2, 3), False),
        ([(1, 4), (4, 9)], (2, 8), False),  # one after the other
        ([(1, None), (4, 9)], (5, 6), False),  # the scheduler reported that the first was killed
        ([(1, 6), (4, 9)], (5, 7), True),  # the first continued after the second had begun
        ([(1, 6), (4, 9)], (2, 3), False),  # before the second
        ([(1, 6), (4, 9)], (7, 8), False),  # after the first
        ([(1, 6), (4, 9)], (3, 5), True),
        ([(1, 9), (4, 5), (6, 7)], (6, 7), True),
    ],
)
def test_a_run_that_shared_its_nodes_with_a_copy_is_not_compared(
    tmp_path: Path, claims: list[tuple[int, int | None]], run: tuple[int, int], two: bool
) -> None:
    job, directory = tmp_path / "jobs" / "j1", tmp_path / "runs" / "a"
    for number, (start, end) in enumerate(claims, 1):
        claim(job, number, start, end)
    begin, over = (f"{DAY}{hour:02d}:00:00Z" for hour in run)
    assert (find_double_claim(job, begin, over) is not None) is two
    directory.mkdir(parents=True)
    (directory / "log.txt").write_text('{"event": "end", "state": "completed", "steps": 1}\n', encoding="utf-8")
    mark = Mark("ended", exit=0, start=begin, end=over, job="j1")
    verdict = resolve_run(
        directory, tmp_path / "jobs", mark, JobSummary("j1", State.COMPLETED), read_ending(directory / "log.txt")
    )
    assert verdict.state is (State.UNKNOWN if two else State.COMPLETED)
    if two:
        assert verdict.reason.startswith("its job ran twice at once, as 7 and ")


def test_a_holder_that_could_not_say_so_is_closed_and_one_that_did_is_left(tmp_path: Path) -> None:
    close_claim(tmp_path, "now")  # it was never claimed
    assert read_claims(tmp_path) == []
    claim(tmp_path, 1, 1, 4)
    claim(tmp_path, 2, 5, None)
    close_claim(tmp_path, f"{DAY}07:00:00Z")
    close_claim(tmp_path, f"{DAY}08:00:00Z")
    assert [claim.end for claim in read_claims(tmp_path)] == [f"{DAY}04:00:00Z", f"{DAY}07:00:00Z"]


def test_a_damaged_claim_is_no_overlap(tmp_path: Path) -> None:
    claim(tmp_path, 1, 1, 6)
    claim(tmp_path, 2, 4, 9)
    (tmp_path / "claims" / "2").write_text("{", encoding="utf-8")
    assert find_double_claim(tmp_path, f"{DAY}02:00:00Z", f"{DAY}08:00:00Z") is None
