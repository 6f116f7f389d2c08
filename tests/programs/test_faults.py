"""Ranks that die, leave, fail or disagree: the others end with a reason within the group's timeout, and none crashes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Outcomes = dict[str, list[Any]]
PATIENCE_S = 30
"""The groups wait for 5 seconds; the rest is for busy machines."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    worker = Path(__file__).parent / "faults_worker.py"
    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path_factory.mktemp("faults"))],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("fault", ["killed", "leaves", "encode fails", "disagrees"])
def test_nobody_hangs_and_nobody_crashes(outcomes: Outcomes, fault: str) -> None:
    for rank, outcome in enumerate(outcomes[fault]):
        assert outcome is not None, f"rank {rank} hangs"
        status, seconds, words = outcome
        assert status in ((3,) if (fault, rank) == ("killed", 1) else (0, 5)), outcome
        assert seconds is None or seconds < PATIENCE_S
        if status == 5:
            assert words


def test_who_is_left_says_why(outcomes: Outcomes) -> None:
    for fault in ("killed", "leaves", "encode fails"):
        status, _, words = outcomes[fault][0]
        assert status == 5 and "Error" in words
    status, _, words = outcomes["encode fails"][1]
    assert status == 5 and "planted in encode" in words


def test_a_decision_that_differs_between_ranks_is_an_error_on_each(outcomes: Outcomes) -> None:
    assert [outcome[0] for outcome in outcomes["disagrees"]] == [5, 5]
