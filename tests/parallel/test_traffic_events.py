"""Tests that the log's final events match its step lines. Channels of different ranks are merged by name."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from traffic_cases import AS_REPORTED, RANKS, TIERS

WORKER = Path(__file__).with_name("traffic_worker.py")
EACH = pytest.mark.parametrize(
    ("tier", "case"),
    [
        *(pytest.param("", case, id=f"{case}") for case in range(TIERS[""])),
        *(pytest.param("long", case, id=f"long-{case}", marks=pytest.mark.long) for case in range(TIERS["long"])),
    ],
)


def find_result(mpi_results: Any, tier: str, case: int) -> dict[str, Any]:
    """Return the worker's result for a case."""
    (result,) = [r for r in mpi_results(RANKS, WORKER, *([tier] if tier else [])) if r["case"] == case]
    assert result["state"] == "completed", result["name"]
    return result


@EACH
def test_channels_add_up_to_the_step_lines(mpi_results, tier, case):
    result = find_result(mpi_results, tier, case)
    message, wire, *_ = map(sum, zip(*result["channels"].values(), strict=True))
    assert [message, wire] == list(map(sum, zip(*result["steps"], strict=True))), result["name"]


@EACH
def test_each_channel_has_the_bytes_of_its_name_on_all_ranks(mpi_results, tier, case):
    result = find_result(mpi_results, tier, case)
    expected = sum(map(Counter, result["counted"]), Counter[str]())
    assert {name: row[0] for name, row in result["channels"].items() if row[0]} == dict(+expected), result["name"]
    assert all(plain <= calls for _, _, calls, plain in result["channels"].values())


@EACH
def test_memory_is_the_largest_of_all_ranks_by_purpose(mpi_results, tier, case):
    result = find_result(mpi_results, tier, case)
    for purpose in set().union(*result["held"]):
        assert result["memory"][purpose] == max(held.get(purpose, 0) for held in result["held"])


def test_some_cases_have_ranks_with_different_channels(mpi_results):
    """Without cases in which channels differ between ranks, the other tests would prove nothing."""
    results = [find_result(mpi_results, "", case) for case in range(TIERS[""])]
    uneven = [result for result in results if len({frozenset(+Counter(c)) for c in result["counted"]}) > 1]
    assert len(uneven) >= len(AS_REPORTED)
