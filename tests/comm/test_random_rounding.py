"""Tests that all ranks get the same sum with random rounding, whichever algorithm computes the sum."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("random_rounding_worker.py")


@pytest.mark.parametrize("ranks", [4, pytest.param(5, marks=pytest.mark.long), pytest.param(8, marks=pytest.mark.long)])
def test_all_ranks_get_the_same_sum(mpi_results, ranks):
    lines = [line for line in mpi_results(ranks, WORKER) if "results" in line]
    assert len({line["algorithm"] for line in lines}) > 4
    assert [line for line in lines if line["results"] != 1] == []


def test_planted_fault_of_own_random_numbers_is_detected(mpi_results):
    faults = [line["fault"] for line in mpi_results(4, WORKER) if "fault" in line]
    assert len(faults) == 4 and min(faults) > 1
