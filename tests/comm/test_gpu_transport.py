"""Tests that collectives on GPU arrays equal those on NumPy arrays, and copy only wire bytes to the host.

The tests run on an emulated device everywhere. ``pytest -m gpu tests/comm`` runs the tests on a real GPU.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcbench.codecs.device import cuda
from hpcbench.comm.places import Places

WORKER = Path(__file__).with_name("gpu_worker.py")
RANKS = [4, pytest.param(2, marks=pytest.mark.long)]
CASES, HALF_CASES = 4 * 16 + 6, 2 * (5 * 14 + 1 + 4) + 3
"""Number of cases in the worker's `cases` and `half_cases`."""

try:
    cuda()
    WHY_NOT = ""
except (ImportError, RuntimeError) as error:
    WHY_NOT = str(error)


@pytest.fixture(scope="session")
def results_of(mpi_results):
    """Return the lines that a function of the worker prints."""
    return lambda ranks, *arguments: mpi_results(ranks, WORKER, *arguments)


@pytest.mark.parametrize("ranks", RANKS)
def test_every_operation_gives_the_bits_that_it_gives_on_the_host(results_of, ranks):
    results = results_of(ranks, "agreement")
    assert len(results) == 2 * CASES
    assert [r for r in results if not (r["same"] and r["same counts"])] == []


@pytest.mark.long
def test_values_that_travel_in_another_type_give_the_bits_that_they_give_on_the_host(results_of):
    *results, planted = results_of(4, "halves")
    assert not planted["same"], "the rounding error is missing in the residual"
    assert len(results) == 2 * HALF_CASES
    assert [r for r in results if not (r["same"] and r["same counts"])] == []
    for r in results:
        if r["algorithm"] == "native":  # the CPU sums 16-bit values, so they must be on the host
            assert any(r["to host"]) == (not r["aware"] or r["operation"] in ("all_reduce", "reduce_scatter")), r
        elif r["aware"]:
            assert not any(r["to host"]) and not any(r["to device"]), r
        else:
            assert sum(r["to device"]) == sum(r["wire"]), r


@pytest.mark.parametrize("ranks", RANKS)
def test_only_wire_bytes_are_copied_to_the_host_and_each_message_once(results_of, ranks):
    encoded = [r for r in results_of(ranks, "agreement") if r["algorithm"] != "native" and not r["aware"]]
    for r in encoded:
        wire = sum(r["wire"])
        assert sum(r["to host"]) <= wire, r
        assert sum(r["to device"]) == wire, r
        if r["operation"] in ("reduce_scatter", "all_to_all"):  # each message has one receiver
            assert r["to host"] == r["wire"], r
        if (r["operation"], r["algorithm"]) == ("all_gather", "two-shot"):  # each message is sent to all other ranks
            assert [(ranks - 1) * x for x in r["to host"]] == r["wire"], r
        ran = ranks > 2 or r["algorithm"] != "hierarchical"  # two ranks share a node
        sampled = ran and r["codec"] in ("zfp:8", "int8:256") and r["operation"] != "exchange"
        assert (max(r["elsewhere"]) > 0) == sampled, r


@pytest.mark.parametrize("ranks", RANKS)
def test_nothing_passes_through_the_host_where_mpi_takes_device_pointers(results_of, ranks):
    for r in results_of(ranks, "agreement"):
        if r["aware"]:
            assert not any(r["to host"]) and not any(r["to device"]), r
        if r["aware"] and r["codec"] in ("none", "mpc"):
            assert not any(r["elsewhere"]), r


@pytest.mark.parametrize("ranks", RANKS)
def test_the_codec_is_timed_on_the_device(results_of, ranks):
    timed = [r for r in results_of(ranks, "agreement") if r["operation"] in ("all_reduce", "with_feedback")]
    for r in timed:
        # the hierarchical algorithm encodes nothing within a node, and two ranks share a node
        encodes = r["algorithm"] not in ("native", *(["hierarchical"] if ranks == 2 else []))
        assert r["timed"] == encodes, r


@pytest.mark.parametrize("ranks", RANKS)
def test_buffers_are_made_by_the_first_call_only(results_of, ranks):
    results = results_of(ranks, "reuse")
    assert len(results) == 8
    for r in results:
        for first, *others in r["buffers"]:
            on_device, pinned = first
            assert on_device > 0 and (pinned > 0) != r["aware"], r
            assert all(other == first for other in others), r


def test_a_missing_wait_for_a_copy_or_a_stream_is_detected(results_of):
    early, deaf = results_of(2, "planted")
    assert not early["same"], "a message was sent before it was complete"
    assert not deaf["same"], "values were encoded before the caller's stream had written them"


def test_a_thread_may_drive_the_device(results_of):
    results = results_of(2, "background")
    assert [r["same"] for r in results] == [True] * 4


def test_a_damaged_message_is_refused(results_of):
    (staged,) = results_of(2, "damaged")
    assert "was damaged in transit" in staged["refusal"]


@pytest.mark.parametrize("x", [[1.0, 2.0], "torch", object()])
def test_other_arrays_are_refused_with_a_message(x):
    if x == "torch":
        import torch

        x = torch.zeros(3)
    with pytest.raises(TypeError, match="collectives take NumPy arrays, or arrays of torch or CuPy on a GPU, but not"):
        Places().of(x)


def test_one_operation_has_one_memory():
    with pytest.raises(TypeError, match="must be in the same memory"):
        Places().of(np.zeros(3), object())


def test_no_gpu_library_is_loaded_for_arrays_of_the_host():
    code = (
        "import sys, numpy, hpcbench.comm.group, hpcbench.comm.places as p; p.Places().of(numpy.zeros(3)); "
        "print([m for m in ('cupy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_real_gpu_gives_the_bits_of_the_host(results_of, ranks):
    results = results_of(ranks, "on_gpu")
    assert len(results) == 2 * (CASES + HALF_CASES)
    assert [r for r in results if not (r["same"] and r["same counts"])] == []


@pytest.mark.parametrize(
    ("cases", "count"), [("cases", CASES), pytest.param("half_cases", HALF_CASES, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_standin_for_cupy_gives_the_bits_of_the_host(results_of, need, ranks, cases, count):
    """CuPy's streams, events, memory and kernels are emulated."""
    need(None if WHY_NOT else "a GPU is here: the test before runs on it")
    results = results_of(ranks, "on_standin", cases)
    assert len(results) == count
    assert [r for r in results if not (r["same"] and r["same counts"])] == []
