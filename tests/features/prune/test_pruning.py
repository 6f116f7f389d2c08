"""Tests that parallel training with sparse weights equals training in one process, and tests of each rank's bytes."""

from pathlib import Path

import prune_faults
import pytest
from cases import MOST_RANKS
from covering import list_combinations
from prune_cases import (
    AXES,
    FAULTY,
    FREE,
    PAIRS,
    TRAVELLERS,
    lossless_sparse,
    lossy_sparse,
    make_comparison,
    places,
    possible,
    sparse,
)
from test_parity import assert_bits, assert_bytes, assert_lossy, assert_same
from tiers import Tiers, list_names

WORKER = Path(__file__).with_name("prune_worker.py")
COVER = Tiers(sparse())


def list_results(mpi_results, key, *part):
    return [result for result in mpi_results(MOST_RANKS, WORKER, *part) if key in result]


def find_result(mpi_results, name):
    (result_of_name,) = (
        result for result in list_results(mpi_results, "name", *COVER.part(name)) if result["name"] == name
    )
    return result_of_name


def assert_sparse(result):
    assert_same(result)
    assert result["masks"] == 0, "weights that one process sets to zero and the ranks do not, or vice versa"
    assert result["stray"] == 0, "weights that are not zero where the mask is"
    assert result["zeros"] > 0


@pytest.mark.parametrize("name", COVER.names)
def test_trains_like_one_process(mpi_results, name):
    assert_sparse(find_result(mpi_results, name))


@pytest.mark.parametrize("name", COVER.names)
def test_message_bytes_of_each_rank_equal_the_closed_forms(mpi_results, name):
    assert_bytes(find_result(mpi_results, name))


@pytest.mark.parametrize("name", list_names(lossless_sparse))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    result = find_result(mpi_results, name)
    assert_bits(result)
    assert result["masks"] == result["stray"] == 0 < result["zeros"]


@pytest.mark.parametrize("name", list_names(lossy_sparse))
def test_replicas_agree_under_a_lossy_scheme(mpi_results, name):
    result = find_result(mpi_results, name)
    assert_lossy(result)
    assert result["stray"] == 0 < result["zeros"]


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    settings, quantity = FAULTY[name]
    sound, faulty = (find_result(mpi_results, make_comparison(settings, fault=which).name) for which in (None, name))
    assert_sparse(sound)
    assert_bytes(sound)
    assert faulty[quantity] != sound[quantity]
    with pytest.raises(AssertionError):
        assert_sparse(faulty)
        assert_bytes(faulty)


def test_a_run_ends_if_masks_differ_or_arrive_damaged(mpi_results):
    messages = {result["transit"]: result["messages"] for result in list_results(mpi_results, "transit")}
    assert messages["none growing"] == messages["none pairs"] == ["", ""]
    assert all("replicas have different masks" in message for message in messages["one_replica_has_another_mask"])
    assert all(
        "a received mask of sparse weights is invalid: invalid positions" in message
        for message in messages["place_out_of_order"]
    )


def test_masks_survive_checkpoints_and_other_layouts(mpi_results):
    legs = list_results(mpi_results, "journey")
    assert sorted(leg["journey"] for leg in legs) == sorted(3 * TRAVELLERS)
    for leg in legs:
        assert leg["before"] == leg["after"] == leg["replicas"] == 0
        assert leg["zeros"] > 0


def test_every_fault_is_in_a_suite():
    assert FAULTY.keys() == prune_faults.FAULTS.keys()


def test_each_pattern_is_in_the_grid_with_every_other_setting():
    for pair in PAIRS:
        met = {tuple(case[name] for name in pair) for case in places() if all(name in case for name in pair)}
        assert met >= list_combinations(pair, possible(), AXES, FREE)
