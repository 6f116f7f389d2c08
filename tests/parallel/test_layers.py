"""Tests that each layer, split over two and four ranks, matches the undivided layer in fp64: values and gradients."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("layer_worker.py")
PARAMETERS = {"attention": 4, "mlp": 4, "norm1": 2, "": 12}
TOLERANCE = 1e-12
"""Tolerance relative to the norm of the undivided layer's tensor, for upstream gradients of order one."""


def results_of(mpi_results, ranks, fault):
    results = [result for result in mpi_results(ranks, WORKER) if result["fault"] == fault]
    assert len(results) == (2 if fault else 4) * len(PARAMETERS)
    return results


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("layer", PARAMETERS)
def test_a_split_layer_equals_the_undivided_one(mpi_results, ranks, layer):
    for result in results_of(mpi_results, ranks, None):
        if result["layer"] == layer:
            assert len(result["errors"]) == 2 + PARAMETERS[layer]
            assert max(result["errors"].values()) <= TOLERANCE, result


@pytest.mark.parametrize(
    ("fault", "layer", "seen_in"),
    [
        ("reduce_left_out", "mlp", "result"),
        ("backward_reduce_left_out", "attention", "input"),
        ("row_split_swapped", "attention", "result"),
    ],
)
def test_planted_fault_is_detected(mpi_results, fault, layer, seen_in):
    for result in results_of(mpi_results, 2, fault):
        if result["layer"] == layer:
            assert result["errors"][seen_in] > 1e-5
        if result["layer"] == "norm1":
            assert max(result["errors"].values()) <= TOLERANCE, "layers that are not split are not affected"
