"""Tests that training over NCCL, on a strict stream model, gives the same results and bytes as training over MPI."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("nccl_training_worker.py")
RANKS = [2, pytest.param(4, marks=pytest.mark.long)]
HOST_WAITS = {"clock.py", "places.py"}
"""Modules that may wait for the device: to read clocks between steps, and to sample the error of a codec."""


@pytest.mark.parametrize("ranks", RANKS)
def test_the_losses_weights_and_counters_are_those_over_mpi(mpi_results: Any, ranks: int) -> None:
    """Plans add in the same order, so results are bitwise identical.

    In this model, the MPI library computes NCCL's own sums. On a GPU, NCCL determines the order of additions.
    """
    results = [result["ranks"] for result in mpi_results(ranks, WORKER, "main")]
    assert len(results) == (5 if ranks == 2 else 10)
    for everyone in results:
        for rank in everyone:
            assert rank["errors"] == [], rank["setting"]
            assert rank["agree"], rank["setting"]
            assert rank["differs"] == [], rank["setting"]
            assert {place.partition("(")[2].partition(":")[0] for place in rank["host waits"]} <= HOST_WAITS


@pytest.mark.parametrize("ranks", RANKS)
def test_the_bytes_are_those_of_the_model(mpi_results: Any, ranks: int) -> None:
    """All ranks together send the predicted number of bytes.

    Ranks send different numbers of bytes, because the pieces of a vector differ in size by one codec block.
    """
    for result in mpi_results(ranks, WORKER, "main"):
        sent, predicted = (sum_channels(rank[name] for rank in result["ranks"]) for name in ("sent", "predicted"))
        assert sent == predicted, result["ranks"][0]["setting"]


def sum_channels(everyone: Iterable[dict[str, int]]) -> Counter[str]:
    """Sum the bytes of all ranks.

    Sums of a step's results are excluded, because they are computed over MPI and the prediction excludes them.
    """
    total = sum(map(Counter, everyone), Counter[str]())
    del total["EXACT STEP OPTIM"]
    return total


def test_missing_events_are_found_in_training(mpi_results: Any) -> None:
    expected = {
        "the caller's values": "no event orders encode",
        "the result": "behind decode",
        "the order of NCCL's operations": "no event orders NCCL",
    }
    results = [result["ranks"] for result in mpi_results(2, WORKER, "planted")]
    assert [everyone[0]["planted"] for everyone in results] == list(expected)
    for everyone in results:
        for rank in everyone:
            assert expected[rank["planted"]] in rank["errors"][0]
