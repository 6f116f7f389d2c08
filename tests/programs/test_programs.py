"""Tests of unmodified PyTorch programs on four ranks: plain, intercepted, and with codecs.

All tests share one launch.
"""

import math
from typing import Any

import pytest
from gradient_sums import EXACT, LOSSY
from pytorch_programs import PROGRAMS, REPLICAS

Ranks = list[dict[str, Any]]


@pytest.fixture
def ranks(played: dict[str, Any]) -> Ranks:
    results: Ranks = played["ranks"]
    return results


def results(ranks: Ranks, program: str, mode: str) -> list[dict[str, Any]]:
    outcomes = [rank["programs"][f"{program}, {mode}"] for rank in ranks]
    assert not any("error" in result for result in outcomes), next(r["error"] for r in outcomes if "error" in r)
    return outcomes


@pytest.mark.parametrize("program", PROGRAMS)
def test_interposed_without_a_codec_nothing_changes(ranks: Ranks, program: str) -> None:
    plain, interposed = results(ranks, program, "plain"), results(ranks, program, "interposed")
    for before, after in zip(plain, interposed, strict=True):
        assert after["losses"] == before["losses"]
        assert after["digest"] == before["digest"]
        assert after["rows"] and not any(row["codec"] for row in after["rows"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_with_int8_on_data_parallelism_other_dimensions_stay_exact(ranks: Ranks, program: str) -> None:
    plain, coded = results(ranks, program, "plain"), results(ranks, program, "int8 on dp")
    encoded = [row for result in coded for row in result["rows"] if row["codec"]]
    assert {row["dimension"] for row in encoded} <= {"DP"}
    if program in ("tensor parallel", "sequence parallel", "pipeline"):
        assert not encoded
        assert [r["losses"] for r in coded] == [r["losses"] for r in plain]
    else:
        assert encoded
        for before, after in zip(plain, coded, strict=True):
            assert after["losses"] != before["losses"]
            assert all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(after["losses"], before["losses"], strict=True))


@pytest.mark.parametrize("program", sorted(REPLICAS))
@pytest.mark.parametrize("mode", ["plain", "int8 on dp", "hybrid"])
def test_replicas_agree_bit_for_bit(ranks: Ranks, program: str, mode: str) -> None:
    assert len({result["digest"] for result in results(ranks, program, mode)}) == 1


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("mode", ["int8 on dp", "hybrid"])
def test_bytes_equal_those_of_the_plans(ranks: Ranks, program: str, mode: str) -> None:
    rows = [row for result in results(ranks, program, mode) for row in result["rows"] if "plan" in row]
    for row in rows:
        assert [row["message_bytes"], row["wire_bytes"]] == row["plan"], row
    assert rows or program in ("tensor parallel", "sequence parallel", "pipeline")


def test_the_hybrid_packs_traffic_that_is_not_data_parallel(ranks: Ranks) -> None:
    for program, dimension in (("tensor parallel", "TP"), ("pipeline", "PP"), ("tp x fsdp2", "TP")):
        coded = results(ranks, program, "hybrid")
        packed = [row for result in coded for row in result["rows"] if row["codec"] == "xpk"]
        assert packed and {row["dimension"] for row in packed} == {dimension}
        plain = results(ranks, program, "plain")
        if program == "pipeline":  # lossless, with an unchanged summation order
            assert [r["losses"] for r in coded] == [r["losses"] for r in plain]


def test_small_messages_integers_and_parameters_are_exact(ranks: Ranks) -> None:
    rows = [row for result in results(ranks, "fsdp2", "int8 on dp") for row in result["rows"]]
    gathers = [row for row in rows if "gather" in row["call"]]
    assert gathers and not any(row["codec"] for row in gathers)
    assert any(row["why"] == "parameters" for row in gathers)


@pytest.mark.parametrize("codec", ["int8:256", "xpk"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_each_call_is_within_the_codecs_error(ranks: Ranks, codec: str, dtype: str) -> None:
    rounding = {"float32": 1e-6, "bfloat16": 2.0**-7, "float16": 2.0**-10}[dtype]
    bound = rounding + (0.04 if codec.startswith("int8") else 0)
    for rank in ranks:
        calls = rank["calls"][f"{codec}, torch.{dtype}"]
        assert "error" not in calls, calls.get("error")
        assert calls["errors"].pop("integers") == 0
        assert calls["errors"].pop("maximum") == 0
        assert max(calls["errors"].values()) <= bound, calls["errors"]
        if codec.startswith("int8"):
            lossy = {name for name, error in calls["errors"].items() if error > 2 * rounding}
            assert len(lossy) == len(calls["errors"]) or dtype != "float32"


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_sums_of_gradients_are_found_inside_the_backward_pass(ranks: Ranks, program: str) -> None:
    rows = [row for result in results(ranks, program, "int8 on dp") for row in result["rows"]]
    assert rows and not [row for row in rows if row["why"] == "outside backward"]


@pytest.mark.parametrize("name", EXACT)
def test_sums_of_other_values_are_those_of_the_unchanged_program(ranks: Ranks, name: str) -> None:
    why = "complex" if name.startswith("complex") else "outside backward"
    assert [rank["sums"][name] for rank in ranks] == [[0.0, [["", why]]]] * len(ranks)


@pytest.mark.parametrize("name", [*LOSSY, "asked"])
def test_sums_of_gradients_are_encoded_at_every_origin(ranks: Ranks, name: str) -> None:
    for rank in ranks:
        difference, carried = rank["sums"][name]
        assert carried == [["int8:256", ""]]
        assert 0 < difference < 0.5


def test_a_rank_that_has_joined_encodes_like_the_others(ranks: Ranks) -> None:
    weights, codecs = ranks[0]["sums"]["join"]
    assert "int8:256" in codecs
    assert all(rank["sums"]["join"][0] == weights for rank in ranks)


def test_shards_of_a_pipeline_are_summed_after_the_backward_pass_and_encoded(ranks: Ranks) -> None:
    assert all("int8:256" in rank["sums"]["pipeline of shards"] for rank in ranks)


@pytest.mark.parametrize("use", ["DDP over a group of all ranks", "DDP over pairs", "DeepSpeed"])
def test_a_group_without_description_has_replicas_where_a_framework_sums_gradients(ranks: Ranks, use: str) -> None:
    assert [rank["uses"][use] for rank in ranks] == [[["DP", "all-reduce"]]] * len(ranks)


@pytest.mark.parametrize("use", ["FSDP1", "FSDP2", "torchtitan"])
def test_shards_over_an_unnamed_group_are_data_parallel(ranks: Ranks, use: str) -> None:
    assert [rank["uses"][use] for rank in ranks] == [[["DP", "reduce-scatter"]]] * len(ranks)


def test_a_mesh_without_names_is_not_data_parallel(ranks: Ranks) -> None:
    for rank in ranks:
        losses, plain, dimensions = rank["uses"]["unnamed"]
        assert losses == plain
        assert dimensions == ["unknown"]


def test_messages_in_the_group_of_all_ranks_have_the_dimension_of_the_layout(ranks: Ranks) -> None:
    expected = [["DP", "all-reduce"], ["PP", "point to point"]]
    assert [rank["uses"]["picotron"] for rank in ranks] == [expected] * len(ranks)


def test_a_handle_of_an_encoded_call_takes_a_timeout(ranks: Ranks) -> None:
    for rank in ranks:
        error, raised = rank["timed"]
        assert error < 0.1 and raised == 1


def test_exchanges_of_experts_in_equal_and_unequal_parts(ranks: Ranks) -> None:
    for rank in ranks:
        assert max(rank["exchange"]["errors"]) < 0.05
        assert any(row["codec"] and row["dimension"] == "EP" for row in rank["exchange"]["rows"])


def test_error_feedback_is_kept_between_calls_and_its_loss_is_detected(ranks: Ranks) -> None:
    for rank in ranks:
        with_feedback, lost = rank["feedback"]
        assert with_feedback < 0.15 < 0.4 < lost


def test_checkpoints_are_exact_and_a_lossy_one_is_detected(ranks: Ranks) -> None:
    for rank in ranks:
        exact, planted = rank["checkpoint"]
        assert exact == 0 < planted


def test_the_hook_of_ddp_equals_the_kernels(ranks: Ranks) -> None:
    for rank in ranks:
        hook = rank["hook"]
        assert hook["hook"] == hook["kernels"] != hook["plain"]
        assert hook["small"] == pytest.approx(hook["plain"], rel=1e-6)


def test_messages_of_a_batch_are_decoded_and_a_missed_one_is_detected(ranks: Ranks) -> None:
    for rank in ranks:
        decoded, undecoded = rank["batched"]
        assert 0 < decoded < 0.05 < 1 < undecoded


def test_a_mesh_made_between_two_calls_identifies_the_group(played: dict[str, Any]) -> None:
    for rank in played["ranks"]:
        assert rank["late mesh"] == [["default_pg", "DP", 2], ["mesh_tp", "TP", 3]]


def test_automatic_choice_measures_the_links_once_and_all_ranks_decide_equally(played: dict[str, Any]) -> None:
    decisions = [rank["automatic"] for rank in played["ranks"]]
    (speed,) = decisions[0]["speeds"]
    assert 1e5 < speed <= 1e9
    assert decisions[0]["rows"] in ([["int8:256", "", 3]], [["", "plan", 3]])
    assert all(decision == decisions[0] for decision in decisions)


def test_within_a_machine_each_kind_of_call_is_tried_once_and_all_ranks_decide_equally(played: dict[str, Any]) -> None:
    decisions = [rank["tried"] for rank in played["ranks"]]
    decision = decisions[0]
    scattered, gathered, summed = decision["tried"]
    expected = {"reduce-scatter": (scattered, 1), "all-gather": (gathered, 1), "all-reduce": (summed, 3)}
    assert decision["rows"] == sorted(
        [call, "int8:256" if coded else "", "" if coded else "plan", count] for call, (coded, count) in expected.items()
    )
    assert (0 < decision["error"] < 0.3) if scattered or gathered else decision["error"] < 1e-5
    assert all({**other, "error": decision["error"]} == decision for other in decisions)
