"""Tests that models on tensor grids match one process, as in test_parity.py, with the expected bytes in each mode."""

from pathlib import Path

import grid_faults
import pytest
from cases import MOST_RANKS
from grid_cases import (
    FAULTY,
    MORE_PLACES,
    PLACES,
    SOUND,
    SUITES,
    faulty_grids,
    grids,
    lossless_grids,
    lossy_grids,
    make_comparison,
    more_grids,
    more_lossy_grids,
)
from test_parity import assert_bits, assert_bytes, assert_detected, assert_lossy, assert_same
from tiers import list_names

WORKER = Path(__file__).with_name("grid_worker.py")


def find_result(mpi_results, suite, name):
    (match,) = (result for result in mpi_results(MOST_RANKS, WORKER, suite) if result["name"] == name)
    return match


def both(few, more):
    """Return the suite and name of each comparison. The second suite runs only in `make test-long`."""
    return [
        *((few.__name__, name) for name in list_names(few)),
        *(pytest.param(more.__name__, name, marks=pytest.mark.long) for name in list_names(more)),
    ]


@pytest.mark.parametrize(("suite", "name"), both(grids, more_grids))
def test_trains_like_one_process(mpi_results, suite, name):
    assert_same(find_result(mpi_results, suite, name))


@pytest.mark.parametrize(("suite", "name"), both(grids, more_grids))
def test_message_bytes_of_each_rank_and_axis_equal_the_closed_forms(mpi_results, suite, name):
    result = find_result(mpi_results, suite, name)
    assert_bytes(result)
    assert any(len(channel.split()) == 4 for rank in result["sent"] for channel in rank), "channels with an axis"


@pytest.mark.long
@pytest.mark.parametrize("name", list_names(lossless_grids))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(find_result(mpi_results, "lossless_grids", name))


@pytest.mark.parametrize(("suite", "name"), both(lossy_grids, more_lossy_grids))
def test_copies_stay_equal_under_a_lossy_codec(mpi_results, suite, name):
    result = find_result(mpi_results, suite, name)
    assert_lossy(result)
    assert result["loss"] < 0.01 and result["norm"] < 0.1, "with 8 bits per message the training is nearly the same"


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    mode, seen_in = FAULTY[name]
    sound = find_result(mpi_results, "faulty_grids", make_comparison({**SOUND, **mode}).name)
    faulty = find_result(mpi_results, "faulty_grids", make_comparison({**SOUND, **mode}, fault=name).name)
    assert_detected(sound, faulty, seen_in)


def test_every_fault_and_every_mode_is_in_a_suite():
    assert FAULTY.keys() == grid_faults.FAULTS.keys()
    for places in (PLACES, MORE_PLACES):
        assert {place["layout.tensor"] for place in places} == {"2d", "2.5d", "3d"}
    assert sum(1 for _ in faulty_grids()) == 3 + len(FAULTY)
    assert len(SUITES) == 6
