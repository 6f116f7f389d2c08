"""Tests that faults planted in real ranks and damaged messages are detected."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("faults_worker.py")

SEEN_BY = {
    "none": [],
    "one dropped": ["two-shot", "exact", "ring", "doubling"],
    "own exact": ["two-shot", "ring", "gather", "broadcast"],
    "own exact in sums": ["doubling"],
    "encoded again": ["ring", "gather"],
    "in arrival order": ["exact"],
}


@pytest.mark.parametrize("fault", SEEN_BY)
def test_ranks_that_deviate_from_the_steps_give_other_bits(mpi_results, fault):
    lines = [line for line in mpi_results(5, WORKER, "faults") if line["fault"] == fault]
    wrong = {line["case"] for line in lines if not line["right"]}
    assert len(lines) == 5 * 6
    assert wrong >= set(SEEN_BY[fault])
    assert wrong or fault == "none"
    assert fault != "none" or not wrong


def test_a_message_that_was_changed_or_cut_is_found_and_its_sender_named(mpi_results):
    lines = [line for line in mpi_results(2, WORKER, "transit") if line["looked"]]
    assert len(lines) == 2 * 7 * 4 * 7
    for line in lines:
        if line["how"] is None or line["rank"] == 1:
            assert line["said"] == "", line
        else:
            assert line["said"].startswith("TransitError: a message of "), line
            assert "from rank 1 was damaged in transit" in line["said"], line


def test_damage_is_missed_without_the_checksum(mpi_results):
    """Without the checksum, some damage is not detected, which shows that the previous test depends on the checksum."""
    lines = [line for line in mpi_results(2, WORKER, "transit") if not line["looked"] and line["rank"] == 0]
    assert len(lines) == 7 * 4
    assert all("TransitError" not in line["said"] for line in lines)
    assert any(line["said"] == "" for line in lines if line["codec"] != "none")
