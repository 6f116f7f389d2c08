"""Tests that late ranks and different wait orders change no bit, with and without a progress thread."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("order_worker.py")


@pytest.mark.parametrize("ranks", [3, pytest.param(5, marks=pytest.mark.long)])
def test_results_in_disorder_equal_those_in_order(mpi_results, ranks):
    results = mpi_results(ranks, WORKER, "order")
    assert len(results) == ranks * 4 * (33 + 65)
    assert {(line["todo"], line["background"]) for line in results} == {
        (todo, background) for todo in ("mixed", "crowd") for background in (False, True)
    }
    assert [line for line in results if not line["same"]] == []
