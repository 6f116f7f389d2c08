"""Tests that a kill leaves no incomplete checkpoint, and that errors name damaged files and files of other runs."""

import re
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("checkpoint_files_worker.py")


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return one name per session, so that `mpi_results` runs a worker only once."""
    return str(tmp_path_factory.mktemp("checkpoints"))


POINTS = {
    "before_any_file": 4,
    "before_own_file": 4,
    "in_own_file": 4,
    "before_complete": 4,
    "in_complete": 4,
    "before_rename": 4,
    "after_rename": 6,
    "in_prune": 6,
}
"""Points at which a rank dies while it writes the checkpoint of step 6, and the step from which the run resumes."""
OFTEN = ("in_own_file", "in_complete", "in_prune")
"""Points tested in `make test`.

Only a few points are tested, because two ranks import all modules again for each point.
"""


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in OFTEN else pytest.mark.long) for point in POINTS]
)
def test_a_kill_while_a_checkpoint_is_written_leaves_the_previous_one(mpi_run, mpi_results, tmp_path, point):
    done = mpi_run(2, WORKER, "kill", str(tmp_path / point), point, server=None)
    assert done.returncode == 9, done.stderr
    results = mpi_results(2, WORKER, "after", str(tmp_path / point))
    assert len(results) == 2
    for result in results:
        assert result["step"] == POINTS[point]
        assert result["sound"] and result["damaged"] == []
        assert result["names"] == [f"step-00000{POINTS[point]}", "step-000008"], "leftovers, or not the last two"
        assert result["then"] == 8


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("cut", "rank-00001.pt has 1000 bytes, but [0-9]+ bytes were written"),
        ("flipped", "rank-00001.pt does not contain the bytes that were written"),
        ("gone", "rank-00000.pt: No such file or directory"),
        ("empty", "rank-00000.pt has 0 bytes, but [0-9]+ bytes were written"),
        ("no_complete", "complete.json: No such file or directory"),
        ("complete_cut", "complete.json is damaged"),
        ("complete_other_step", "complete.json is damaged"),
        ("complete_no_digest", "complete.json is damaged"),
        ("complete_few_ranks", "complete.json is damaged"),
        ("complete_other_place", "complete.json is damaged"),
        ("complete_stale", "rank-00000.pt does not contain the bytes that were written"),
        ("complete_is_a_list", "complete.json is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(mpi_results, place, damage, message):
    results = [r for r in mpi_results(2, WORKER, "damage", place + "/damage") if r["damage"] == damage]
    assert len(results) == 2
    for result in results:
        assert result["step"] == 2 and result["sound"]
        assert re.fullmatch(f"step-000004: {message}", *result["damaged"])


def test_a_run_whose_checkpoints_are_all_damaged_starts_from_its_first_step(mpi_results, place):
    results = [r for r in mpi_results(2, WORKER, "damage", place + "/damage") if r["damage"] == "both"]
    assert [result["step"] for result in results] == [None, None]
    assert all(len(result["damaged"]) == 2 for result in results)


def test_a_damaged_checkpoint_does_not_replace_the_last_good_one(mpi_results, place):
    results = [r for r in mpi_results(2, WORKER, "damage", place + "/damage") if r["damage"] == "kept"]
    assert results[0]["names"] == ["step-000002", "step-000006"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learning rate", "train.lr is 0.01 in the checkpoint, but 0.5 in the run file"),
        ("seed", "train.seed is 7 in the checkpoint, but 8 in the run file"),
        ("vocabulary", "model.vocab is 256 in the checkpoint, but 300 in the run file"),
        ("data", "data.valid_fraction is 0.1 in the checkpoint, but 0.2 in the run file"),
        ("model", "model.name is 'neox' in the checkpoint, but 'gpt2' in the run file"),
        ("scheme", "scheme.name is 'baseline' in the checkpoint, but 'signs' in the run file"),
        ("version", "written by another version of hpcbench"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_its_first_difference(mpi_results, place, change, message):
    results = [r for r in mpi_results(2, WORKER, "others", place + "/others") if r["change"] == change]
    assert len(results) == 2
    for result in results:
        assert message in result["error"] and "step-000002" in result["error"]
        assert "to start from step 1" in result["error"] and "\n" not in result["error"]


def test_the_interval_of_checkpoints_may_change(mpi_results, place):
    results = [r for r in mpi_results(2, WORKER, "others", place + "/others") if r["change"] == "checkpoint_every"]
    assert [result.get("step") for result in results] == [2, 2]


def test_a_full_disk_of_one_rank_is_reported_by_all(mpi_results, place):
    results = mpi_results(2, WORKER, "full", place + "/full-disk")
    assert len(results) == 2
    for result in results:
        assert "checkpoint of step 4 cannot be written: rank 1 on" in result["error"]
        assert "No space left on device: free disk space" in result["error"]
        assert result["step"] == 2 and result["sound"]
