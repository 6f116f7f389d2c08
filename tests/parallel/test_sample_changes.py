"""Tests of per-sample activation changes between pipeline stages, compared with a plain model of the recursion."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("sample_changes_worker.py")
SENDERS = {"1f1b": 1, "interleaved": 2, "limited": 1, "bf16": 1}


def named(mpi_results, case, fault=None):
    lines = [line for line in mpi_results(2, WORKER) if (line["case"], line["fault"]) == (case, fault)]
    assert len(lines) == SENDERS[case]
    return lines


def assert_follows_the_recursion(lines):
    """Require equal bits on both ranks, and in fp32 also the bits of the model, which does not round to bf16."""
    for line in lines:
        assert line["differ"] == 0 and line["kept"] == line["expected"] > 0
        assert line["wrong"] == 0 or line["case"] == "bf16"


@pytest.mark.parametrize("case", SENDERS)
def test_both_stages_keep_the_decoded_activations(mpi_results, case):
    assert_follows_the_recursion(named(mpi_results, case))


@pytest.mark.parametrize("case", SENDERS)
def test_samples_that_recur_have_smaller_errors(mpi_results, case):
    for line in named(mpi_results, case):
        first, second, third = line["errors"]
        assert first > 1.2 * second and (case == "limited" or second > 2 * third)


@pytest.mark.parametrize("case", SENDERS)
def test_counters_and_memory_are_those_of_the_formula(mpi_results, case):
    lines = named(mpi_results, case)
    sides = sum(line["kept"] for line in lines)  # each rank of this layout keeps what one of the ranks sends
    for line in lines:
        assert line["counted"] == [line["predicted"], line["coded"]]
        assert line["held"] == line["activation"] * sides


@pytest.mark.parametrize("fault", ["sender_not_updated", "exact_values_kept", "change_of_another_sample"])
def test_planted_fault_is_detected(mpi_results, fault):
    with pytest.raises(AssertionError):
        assert_follows_the_recursion(named(mpi_results, "1f1b", fault))
