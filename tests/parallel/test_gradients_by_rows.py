"""Tests that embedding gradients sent as rows match one process and whole gradients, including the bytes sent."""

from pathlib import Path

import numpy as np
import pytest
import row_faults
from cases import MOST_RANKS
from covering import every_case
from row_cases import AXES, FAULTY, FREE, PAIRS, SPARSE, faulty_pair, fits, lossless, lossy, places, rows, same_bits
from test_parity import assert_bits, assert_bytes, assert_lossy, assert_replicas_agree, assert_same
from tiers import Tiers, list_names

from hpcbench.codecs.registry import get_codec
from hpcbench.contract import events
from hpcbench.parallel.sparse.measure import DENSITIES, crossing

WORKER = Path(__file__).with_name("row_worker.py")
COVER = Tiers(rows())
CHECKS = {"sent": assert_bytes, "replicas": assert_replicas_agree, "gradients": assert_same}


def find_result(mpi_results, name):
    (match,) = (result for result in mpi_results(MOST_RANKS, WORKER, *COVER.part(name)) if result.get("name") == name)
    return match


@pytest.mark.parametrize("name", COVER.names)
def test_trains_like_one_process(mpi_results, name):
    assert_same(find_result(mpi_results, name))


@pytest.mark.parametrize("name", COVER.names)
def test_message_bytes_of_each_rank_equal_those_of_the_counts(mpi_results, name):
    result = find_result(mpi_results, name)
    assert_bytes(result)
    assert any("EXACT BACKWARD GRAD" in rank for rank in result["sent"])


def test_rows_meet_every_other_setting():
    possible = every_case(AXES, fits)
    for _, name in PAIRS:
        values = {case[name] for case in possible} if name in AXES else set(FREE[name])
        assert values == set((AXES if name in AXES else FREE)[name]), f"{name}: some value is never possible"
        for way in FREE[SPARSE]:
            assert {case[name] for case in places() if name in case and case[SPARSE] == way} >= values, name


@pytest.mark.parametrize("name", list_names(same_bits))
def test_rows_have_the_bits_of_whole_gradients(mpi_results, name):
    assert_bits(find_result(mpi_results, name))


@pytest.mark.parametrize("name", list_names(lossless))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(find_result(mpi_results, name))


@pytest.mark.parametrize("name", list_names(lossy))
def test_replicas_agree_under_a_lossy_scheme(mpi_results, name):
    assert_lossy(find_result(mpi_results, name))


def test_error_feedback_conserves_the_sum(mpi_results):
    results = [result for result in mpi_results(MOST_RANKS, WORKER) if "conserved" in result]
    assert [result["conserved"] for result in results] == [0, 1]
    for result in results:
        total, sent, residual = result["parts"]
        assert sent > 0.1 * total and residual > 0.1 * total, "some is sent and some stays in the residual"
        assert result["lost"] < 1e-5 * total


def test_the_log_has_the_number_of_touched_rows_and_the_chosen_ways(mpi_results):
    results = [result for result in mpi_results(MOST_RANKS, WORKER) if "said" in result]
    assert len(results) == 2
    for result in results:
        assert result["said"]["reductions"] == result["said"]["by_rows"] == 3
        assert result["said"]["density"] == result["touched"] > 0
        assert 0 < result["said"]["switch_density"] < 1


def test_parts_of_different_lengths_are_joined_equally_on_all_ranks(mpi_results):
    results = [result for result in mpi_results(MOST_RANKS, WORKER) if "gathered" in result]
    assert len(results) == 6
    for result in results:
        gathered = result["gathered"]
        assert result["alike"] and result["sent"], gathered
        bound = {"int8:256": 0.05, "none": 2e-3 if gathered["dtype"] else 0.0}.get(gathered["codec"], 0.0)
        assert gathered["error"] <= bound, gathered
        assert not bound or gathered["error"] > 0, gathered


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    check = CHECKS[FAULTY[name][1]]
    right, wrong = (find_result(mpi_results, comparison.name) for comparison in faulty_pair(name))
    check(right)
    with pytest.raises(AssertionError):
        check(wrong)


def switched(mpi_results, **wanted):
    results = [result for result in mpi_results(MOST_RANKS, WORKER) if "switch" in result]
    return [result for result in results if wanted.items() <= result.items()]


@pytest.mark.parametrize("stage", [0, 1])
def test_ranks_with_different_clocks_choose_the_same_ways(mpi_results, stage):
    """All ranks compute the switch point from the longest times of any rank, bitwise identically."""
    results = switched(mpi_results, stage=stage, fault=None, times="planted")
    assert {result["rank"] for result in results} == {0, 1, 2, 3}
    for result in results:
        assert result["switch"]["measured"] == 1 / 16 + 3 / 16 * (1.0 - 0.2) / (1.6 - 0.2)
        assert (result["switch"]["whole_s"], result["switch"]["rows_s"]) == (1.0, [0.1, 0.2, 1.6, 2.0])
        assert result["switch"] == results[0]["switch"]
        assert result["went"] == [density <= result["switch"]["measured"] for density in result["densities"]]
        assert len(set(result["went"])) == 2


def test_a_rank_that_decides_by_its_own_times_is_detected(mpi_results):
    results = switched(mpi_results, fault="decides_by_its_own_times")
    assert len(results) == 4
    assert len({result["switch"]["measured"] for result in results}) == 4
    assert len({tuple(result["went"]) for result in results}) > 1, "some would send rows, others the whole gradient"


@pytest.mark.parametrize(("times", "by_rows"), [("rows quick", 1), ("rows slow", 0)])
def test_a_step_goes_the_faster_way(mpi_results, times, by_rows):
    """The faster path is chosen even if it sends more bytes."""
    results = switched(mpi_results, times=times)
    assert [result["by_rows"] for result in results] == [by_rows] * 4
    assert {result["switch"]["measured"] for result in results} == {float(by_rows)}
    shorter = {result["shorter"] for result in results}
    assert shorter == {not by_rows}, "by bytes the other way would be chosen"


def test_the_measured_and_the_computed_switch_point_are_logged(mpi_results):
    (logged,) = [result for result in mpi_results(MOST_RANKS, WORKER) if "real" in result]
    event = events.parse_event(logged["real"], 1)
    assert isinstance(event, events.SparseSwitch)
    codec, rows = get_codec("topk:0.1"), 256
    row = codec.wire_bytes(32 * rows, np.dtype("f4")) / rows if codec.fixed_size else 4 * 32
    assert event.computed == pytest.approx(2 / 4 * row / (row + 4), rel=1e-12)
    assert event.densities == DENSITIES
    assert min(event.whole_s, *event.rows_s) > 0
    assert event.measured == crossing(event.densities, event.rows_s, event.whole_s)
    assert logged["calls"] == [], "measuring must not change the random bits of codecs"
    assert logged["residuals"] == 0.0


def test_every_fault_is_in_a_suite():
    assert FAULTY.keys() | {"decides_by_its_own_times"} == row_faults.FAULTS.keys()
