"""Tests that the operation counts of models with experts match PyTorch's FLOP counts of a step's matrix products."""

from pathlib import Path

import pytest
from executed_flops_worker import KINDS, LAYOUTS
from expert_cases import NAMED

WORKER = Path(__file__).with_name("executed_flops_worker.py")
SEQ_LEN, BATCH, HIDDEN = 12, 8, 32


def find_result(mpi_results, layout, kind):
    (result,) = (r for r in mpi_results(4, WORKER) if (r["layout"], r["experts"]) == (layout, kind))
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_executed_operations_equal_the_count_of_pytorch(mpi_results, layout, kind):
    result = find_result(mpi_results, layout, kind)
    assert result["executed"] == pytest.approx(result["counted"], rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_needed_operations_are_those_of_kept_rows_in_every_layout(mpi_results, layout, kind):
    result, settings = find_result(mpi_results, layout, kind), NAMED[kind]
    layers = 2 // settings.every
    assert result["kept"] == find_result(mpi_results, "one rank", kind)["kept"]
    chosen = layers * BATCH * SEQ_LEN * settings.top
    assert (result["kept"] < chosen) == (kind in ("tight", "switch"))
    rows = result["kept"] + (settings.shared - 1) * layers * BATCH * SEQ_LEN
    router = 2 * layers * BATCH * SEQ_LEN * settings.count * HIDDEN
    assert result["needed"] == pytest.approx(3 * (16 * HIDDEN**2 * rows + router), rel=1e-9)


@pytest.mark.parametrize("kind", ["tight", "roomy", "switch"])
def test_empty_places_are_executed_where_rows_travel_in_places(mpi_results, kind):
    spread, alone = (find_result(mpi_results, layout, kind) for layout in ("dp4-ep4", "one rank"))
    assert alone["counted"] == pytest.approx(alone["needed"]) == pytest.approx(spread["needed"])
    places = NAMED[kind].count * NAMED[kind].places(SEQ_LEN) * 2 * BATCH
    assert places > spread["kept"]
    empty = 3 * 16 * HIDDEN**2 * (places - spread["kept"])
    assert spread["counted"] - spread["needed"] == pytest.approx(empty)
