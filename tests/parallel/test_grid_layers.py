"""Tests that each layer on each tensor grid matches the undivided layer in fp64 and sends the predicted bytes."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("grid_layer_worker.py")
LAYERS = {"embedding": 2, "attention": 4, "mlp": 4, "norm": 2, "block": 12, "head": 3}
"""Number of parameters of each layer."""
TOLERANCE = 1e-12
"""Tolerance relative to the norm of the undivided layer's tensor, for upstream gradients of order one."""
GRIDS = [
    *(("2d", 4), ("2.5d", 8), ("3d", 8)),
    *(pytest.param(*grid, marks=pytest.mark.long) for grid in (("2d", 9), ("3d", 27))),
]


def results(mpi_results, mode, ranks):
    return [line for line in mpi_results(ranks, WORKER) if line["layout"] == mode]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("mode", "ranks"), GRIDS)
def test_a_layer_on_a_grid_equals_the_undivided_one(mpi_results, mode, ranks, layer):
    lines = [line for line in results(mpi_results, mode, ranks) if line.get("layer") == layer]
    assert len(lines) == (2 if ranks < 9 else 1)
    for line in lines:
        assert len(line["errors"]) == LAYERS[layer] + (1 if layer == "embedding" else 2)
        assert line["parameters"] and max(line["errors"].values()) <= TOLERANCE, line


@pytest.mark.parametrize(("mode", "ranks"), GRIDS)
def test_every_rank_sends_the_bytes_of_the_closed_form_over_each_axis(mpi_results, mode, ranks):
    lines = [line for line in results(mpi_results, mode, ranks) if "layer" in line]
    assert sum(bool(line["sent"]) for line in lines) >= len(LAYERS) - 1, "all layers except the norm send"
    for line in lines:
        assert line["bytes_equal"] and line["sent"] == line["foretold"], line


@pytest.mark.parametrize(("mode", "ranks"), GRIDS)
def test_held_and_kept_elements_are_those_of_the_formulas(mpi_results, mode, ranks):
    lines = [line for line in results(mpi_results, mode, ranks) if "held" in line]
    assert len(lines) == ranks
    for line in lines:
        for measured, formula in (line["held"], line["kept"]):
            assert measured == formula, line


@pytest.mark.parametrize(("mode", "ranks"), GRIDS)
def test_weights_in_eight_bits_leave_a_result_within_the_bound(mpi_results, mode, ranks):
    for line in results(mpi_results, mode, ranks):
        if "bound" in line:
            assert 0 < line["error"] <= line["bound"], line
