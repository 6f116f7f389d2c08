"""Tests that models with experts match one process, as in test_parity.py, and send the expected number of bytes."""

from itertools import combinations
from pathlib import Path

import expert_faults
import pytest
from cases import MOST_RANKS
from covering import list_combinations
from expert_cases import (
    AXES,
    DROPPING,
    FAULTY,
    FREE,
    SPREAD,
    experts,
    lossless_experts,
    lossy_experts,
    make_comparison,
    make_sound_settings,
    overlapped_experts,
    places,
    possible,
)
from test_parity import assert_bits, assert_bytes, assert_detected, assert_lossy, assert_same
from tiers import Tiers, list_names

WORKER = Path(__file__).with_name("expert_worker.py")
COVER = Tiers(experts())


def find_result(mpi_results, name):
    (match,) = (result for result in mpi_results(MOST_RANKS, WORKER, *COVER.part(name)) if result.get("name") == name)
    return match


def drops(mpi_results):
    return [result for result in mpi_results(MOST_RANKS, WORKER) if "kept" in result]


@pytest.mark.parametrize("name", COVER.names)
def test_trains_like_one_process(mpi_results, name):
    assert_same(find_result(mpi_results, name))


@pytest.mark.parametrize("name", COVER.names)
def test_message_bytes_of_each_rank_equal_the_closed_forms(mpi_results, name):
    result = find_result(mpi_results, name)
    assert_bytes(result)
    spread = next(case for case in experts() if case.name == name).run.layout.ep > 1
    for channel in ("EP FORWARD ACT", "EP BACKWARD GRAD"):
        assert any(rank.get(channel) for rank in result["sent"]) == spread


@pytest.mark.parametrize("kind", DROPPING)
def test_the_same_tokens_are_dropped_in_every_layout(mpi_results, kind):
    results = [result for result in drops(mpi_results) if result["experts"] == kind]
    assert [1, 1] in [result["place"] for result in results] and len(results) >= 5
    alone = results[0]["kept"]
    assert len(alone) == 2 * 16 and "0" in "".join(alone) and "1" in "".join(alone)
    assert all(result["kept"] == alone for result in results)


def test_a_rank_holds_the_bytes_of_the_closed_form(mpi_results):
    results = drops(mpi_results)
    assert len({tuple(result["place"]) for result in results}) == len(SPREAD)
    for result in results:
        assert len(result["held"]) == result["place"][0]
        assert all(held == expected for held, expected in result["held"]), result["place"]


@pytest.mark.parametrize("name", list_names(lossless_experts))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(find_result(mpi_results, name))


@pytest.mark.parametrize("name", list_names(lossy_experts))
def test_copies_stay_equal_under_a_lossy_codec(mpi_results, name):
    result = find_result(mpi_results, name)
    assert_lossy(result)
    assert result["loss"] < 0.01


@pytest.mark.parametrize("name", list_names(overlapped_experts))
def test_overlap_changes_no_bit(mpi_results, name):
    assert_bits(find_result(mpi_results, name))


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    settings, seen_in = FAULTY[name]
    right = find_result(mpi_results, make_comparison(make_sound_settings(settings)).name)
    faulty = find_result(mpi_results, make_comparison(make_sound_settings(settings), fault=name).name)
    assert_detected(right, faulty, seen_in)


def test_every_fault_is_in_a_suite():
    assert FAULTY.keys() == expert_faults.FAULTS.keys()


def test_every_pair_of_settings_is_in_the_grid():
    for pair in combinations([*AXES, *FREE], 2):
        met = {tuple(case[name] for name in pair) for case in places() if all(name in case for name in pair)}
        assert met >= list_combinations(pair, possible(), AXES, FREE)
