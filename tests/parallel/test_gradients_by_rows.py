"""Embeddings whose gradient travels by rows against one process, and against whole gradients; and what is sent."""

from pathlib import Path

import pytest
import row_faults
from cases import MOST_RANKS
from covering import every_case
from row_cases import AXES, FAULTY, FREE, PAIRS, SPARSE, faulty_pair, fits, lossless, lossy, places, rows, same_bits
from test_parity import assert_bits, assert_bytes, assert_lossy, assert_replicas_agree, assert_same
from tiers import Tiers

WORKER = Path(__file__).with_name("row_worker.py")
COVER = Tiers(rows())
CHECKS = {"sent": assert_bytes, "replicas": assert_replicas_agree, "gradients": assert_same}


def result_of(mpi_results, name):
    (found,) = (result for result in mpi_results(MOST_RANKS, WORKER, *COVER.part(name)) if result.get("name") == name)
    return found


def names(suite):
    return [comparison.name for comparison in suite()]


@pytest.mark.parametrize("name", COVER.names)
def test_trains_as_one_process(mpi_results, name):
    assert_same(result_of(mpi_results, name))


@pytest.mark.parametrize("name", COVER.names)
def test_message_bytes_of_each_rank_equal_those_of_the_counts(mpi_results, name):
    result = result_of(mpi_results, name)
    assert_bytes(result)
    assert any("EXACT BACKWARD GRAD" in rank for rank in result["sent"])


def test_rows_meet_every_other_setting():
    possible = every_case(AXES, fits)
    for _, name in PAIRS:
        values = {case[name] for case in possible} if name in AXES else set(FREE[name])
        assert values == set((AXES if name in AXES else FREE)[name]), f"{name}: some value is never possible"
        for way in FREE[SPARSE]:
            assert {case[name] for case in places() if name in case and case[SPARSE] == way} >= values, name


@pytest.mark.parametrize("name", names(same_bits))
def test_rows_have_the_bits_of_whole_gradients(mpi_results, name):
    assert_bits(result_of(mpi_results, name))


@pytest.mark.parametrize("name", names(lossless))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(result_of(mpi_results, name))


@pytest.mark.parametrize("name", names(lossy))
def test_replicas_agree_under_a_lossy_scheme(mpi_results, name):
    assert_lossy(result_of(mpi_results, name))


def test_error_feedback_conserves_the_sum(mpi_results):
    found = [result for result in mpi_results(MOST_RANKS, WORKER) if "conserved" in result]
    assert [result["conserved"] for result in found] == [0, 1]
    for result in found:
        whole, sent, kept = result["parts"]
        assert sent > 0.1 * whole and kept > 0.1 * whole, "some is sent and some is kept back"
        assert result["lost"] < 1e-5 * whole


def test_the_log_says_how_many_rows_were_touched_and_which_way_they_went(mpi_results):
    found = [result for result in mpi_results(MOST_RANKS, WORKER) if "said" in result]
    assert len(found) == 2
    for result in found:
        assert result["said"]["reductions"] == result["said"]["by_rows"] == 3
        assert result["said"]["density"] == result["touched"] > 0
        assert 0 < result["said"]["switch_density"] < 1


def test_parts_of_other_lengths_are_joined_alike_on_all_ranks(mpi_results):
    found = [result for result in mpi_results(MOST_RANKS, WORKER) if "gathered" in result]
    assert len(found) == 6
    for result in found:
        words = result["gathered"]
        assert result["alike"] and result["sent"], words
        bound = {"int8:256": 0.05, "none": 2e-3 if words["dtype"] else 0.0}.get(words["codec"], 0.0)
        assert words["error"] <= bound, words
        assert not bound or words["error"] > 0, words


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_seen(mpi_results, name):
    check = CHECKS[FAULTY[name][1]]
    right, wrong = (result_of(mpi_results, comparison.name) for comparison in faulty_pair(name))
    check(right)
    with pytest.raises(AssertionError):
        check(wrong)


def test_every_fault_is_in_a_suite():
    assert FAULTY.keys() == row_faults.FAULTS.keys()
