"""Tests that a run resumed in another layout gives the same results and reads only the files that it needs."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.contract.shards import cut_evenly
from hpcbench.train.checkpoint_index import Announced, Index, ReplicasDifferError, share_out
from hpcbench.train.extent import Extent, copy

WORKER = Path(__file__).with_name("relayout_worker.py")
FIRST, OTHERS = 5, 21
"""Layout changes of the worker that `make test` runs, and those that only `make test-long` runs."""
TOLERANCE = 1e-12
"""Relative tolerance in fp64. Sums over ranks are added in a different order than on one rank."""


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("relayout"))


def assert_goes_on(result):
    assert "error" not in result
    assert result["moved"] == [], "the same numbers, bit for bit"
    assert result["fields"] == ["first", "master", "second", "values"]
    assert result["agree"] and result["positions"] == 2
    for what in ("loss", *result["fields"]):
        assert result[what] < TOLERANCE, what


def journeys(mpi_results, place, part="first"):
    results = mpi_results(8, WORKER, "matrix", f"{place}/{part}", part)
    assert len(results) == (FIRST if part == "first" else OTHERS)
    return results


@pytest.mark.parametrize(
    ("part", "journey"),
    [
        *(("first", number) for number in range(FIRST)),
        *(pytest.param("others", number, marks=pytest.mark.long) for number in range(OTHERS)),
    ],
)
def test_a_run_continues_in_another_layout_like_in_one_process(mpi_results, place, part, journey):
    result = journeys(mpi_results, place, part)[journey]
    assert_goes_on(result)
    assert result["carried"].startswith("another layout (") and "residuals" not in result["carried"]


def test_a_stage_opens_no_file_of_another_stage(mpi_results, place):
    """The first four ranks of the cube form its first stage, whose layers belong to stages 0 and 1 of four."""
    (result,) = [
        journey
        for journey in journeys(mpi_results, place)
        if journey["from"] == "dp2tp2pp2" and journey["model"] == "neox"
    ]
    assert result["to"] == "dp1tp4pp2 zero=0"
    for rank, files in enumerate(result["files"]):
        assert files and set(files) <= (set(range(4)) if rank < 4 else set(range(4, 8)))


@pytest.mark.parametrize("fault", ["slices_swapped", "moments_of_another", "index_stale", "halves_swapped"])
def test_planted_fault_is_detected(mpi_results, place, fault):
    results = {result["fault"]: result for result in mpi_results(8, WORKER, "faults", place + "/faults")}
    assert_goes_on(results["none"])
    with pytest.raises(AssertionError):
        assert_goes_on(results[fault])
    if fault == "index_stale":
        assert "elements of the optimizer of" in results[fault]["error"]
        assert "remove this checkpoint to continue" in results[fault]["error"] and "\n" not in results[fault]["error"]


def test_errors_of_messages_are_conserved(mpi_results, place):
    results = mpi_results(8, WORKER, "residuals", place + "/residuals")
    sound = [result for result in results if result["journey"] == "plain"]
    assert [result["to"] for result in sound] == ["dp4tp1pp2", "dp3tp2pp1", "dp1tp2pp2", "dp2tp2pp2"]
    for result in sound[:2]:
        assert result["size"] > 0
        assert result["error"] < 1e-6, "more than the rounding of fp32"
        assert "residuals are added up and divided equally among the ranks" in result["carried"]
    assert "residuals are dropped" in sound[2]["carried"], "a single replica sends nothing, so it has no errors"
    assert "residuals" not in sound[3]["carried"]


def test_errors_of_messages_of_experts_are_conserved(mpi_results, place):
    """An expert has fewer replicas than other parameters."""
    results = mpi_results(8, WORKER, "residuals", place + "/residuals")
    legs = [result for result in results if result["journey"] == "experts"]
    assert [result["to"] for result in legs] == ["dp6tp1pp1 ep2", "dp4tp1pp1"]
    for result in legs:
        assert result["size"] > 0
        assert result["error"] < 1e-6, f"more than the rounding of fp32: {result['worst']} in {result['to']}"


@pytest.mark.parametrize("journey", ["spread", "momenta"])
def test_summands_of_the_tensor_group_are_conserved(mpi_results, place, journey):
    """With sequence parallelism, errors of norms, row layers' biases, and positions differ between tensor ranks.

    The momenta of 1-bit Adam are full sums, not partial sums, so all tensor-parallel ranks have the same errors.
    """
    results = mpi_results(8, WORKER, "residuals", place + "/residuals")
    legs = [result for result in results if result["journey"] == journey and result["fault"] is None]
    layouts = ["dp4tp1pp2", "dp3tp2pp1", "dp3tp2pp1", "dp2tp2pp2", "dp2tp4pp1"]
    assert [result["to"].split()[0] for result in legs] == layouts[: 2 if journey == "momenta" else None]
    for result in legs:
        assert result["size"] > 0
        assert result["error"] < 1e-6, f"more than the rounding of fp32: {result['worst']} in {result['to']}"


@pytest.mark.parametrize("fault", ["sums_forgotten", "summands_counted_once"])
def test_a_missing_residual_is_detected(mpi_results, place, fault):
    results = mpi_results(8, WORKER, "residuals", place + "/residuals")
    (forgotten,) = [result for result in results if result["fault"] == fault]
    assert forgotten["error"] > 0.1


def test_no_seed_of_a_codec_is_used_twice(mpi_results, place):
    for result in mpi_results(8, WORKER, "residuals", place + "/residuals"):
        assert any(result["most"].values())
        for calls in result["calls"]:
            assert all(calls[name] == most for name, most in result["most"].items())


# ---------------------------------------------------------------- without ranks


@st.composite
def cuts(draw, shape):
    """Draw a tensor that is cut along at most one dimension, and whose boxes are each cut into runs of elements."""
    dim = draw(st.sampled_from([None, *range(len(shape))]))
    count = draw(st.integers(1, 5)) if dim is not None else 1
    extents = []
    for i in range(count):
        held = [slice(0, size) for size in shape]
        if dim is not None:
            held[dim] = cut_evenly(shape[dim], count)[i]
        length = Extent.of(tuple(held)).length
        bounds = [0, *sorted(draw(st.lists(st.integers(0, length), max_size=4))), length]
        extents += [Extent.of(tuple(held), a, b - a) for a, b in pairwise(bounds)]
    return extents


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_cut_is_filled_from_any_other(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    full = torch.arange(math.prod(shape), dtype=torch.float64).view(shape)

    def part(extent):
        box = full[tuple(slice(*pair) for pair in extent.box)].reshape(-1)
        return box[extent.start : extent.start + extent.length].clone()

    written = [(extent, part(extent)) for extent in data.draw(cuts(shape))]
    for extent in data.draw(cuts(shape)):
        target = torch.full((extent.length,), torch.nan, dtype=torch.float64)
        copied = sum(copy(target, extent, values, of) for of, values in written)
        assert copied == extent.length, "each element once"
        assert torch.equal(target, part(extent))


def announced(name, nbytes, digest="a", *, kind="parameters"):
    return Announced(kind, name, (nbytes,), Extent(((0, nbytes),), 0, nbytes), nbytes, digest)


def test_common_values_are_written_once_and_by_turns():
    items = [announced(f"w{i}", 10) for i in range(8)]
    residual = announced("w0", 5, kind="residuals")
    chosen = share_out([[*items, residual], [*items, residual], items, items])
    assert sorted(i for mine in chosen for i in mine) == sorted([*range(8), 8, 8])
    assert 8 in chosen[0] and 8 in chosen[1], "residuals are each rank's own"
    load = [sum(5 if i == 8 else 10 for i in mine) for mine in chosen]
    assert max(load) <= 30
    index = Index.of([[*items, residual], [*items, residual], items, items], chosen)
    assert [len(index.parts("parameters", f"w{i}", (10,))) for i in range(8)] == [1] * 8
    with pytest.raises(ValueError, match="shape"):
        index.parts("parameters", "w0", (11,))


def test_replicas_that_differ_do_not_overwrite_each_other():
    with pytest.raises(ReplicasDifferError, match="ranks 0 and 2 have different parameters of w"):
        share_out([[announced("w", 4)], [announced("w", 4)], [announced("w", 4, "b")]])


def test_copies_in_half_precision_keep_their_bits():
    source = torch.tensor(np.arange(12) / 7, dtype=torch.bfloat16)
    target = torch.empty(12, dtype=torch.bfloat16)
    extent = Extent(((0, 3), (0, 4)), 0, 12)
    assert copy(target, extent, source, extent) == 12
    assert torch.equal(target, source)
