"""Ranks that die, leave, fail or disagree: the others end with a reason in time, and none crashes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Outcomes = dict[str, list[Any]]
WORKER = Path(__file__).parent / "worker.py"
FAULTS = ("killed", "leaves", "stalls", "encode fails", "disagrees")
ORDERS = ("other order", "two threads")
"""What plain gloo carries out."""
TIMEOUT_S, PATIENCE_S = 4, 60
"""The groups wait for the first; the rest is for busy machines."""


@pytest.fixture
def outcomes(played: dict[str, Any]) -> Outcomes:
    found: Outcomes = played["faults"]
    return found


def check(outcomes: Outcomes, fault: str) -> None:
    """Nobody hangs, and nobody crashes."""
    for rank, outcome in enumerate(outcomes[fault]):
        assert outcome is not None, f"rank {rank} hangs"
        status, seconds, words = outcome
        assert status in ((3,) if (fault, rank) == ("killed", 1) else (0, 5)), outcome
        assert seconds is None or seconds < PATIENCE_S
        if status == 5:
            assert words


@pytest.mark.parametrize("fault", FAULTS)
def test_nobody_hangs_and_nobody_crashes(outcomes: Outcomes, fault: str) -> None:
    check(outcomes, fault)


def reasons(outcomes: Outcomes) -> None:
    """Who is left says why, and the words of the rank that failed reach the others."""
    for fault in ("killed", "leaves", "stalls", "encode fails"):
        status, _, words = outcomes[fault][0]
        assert status == 5 and "Error" in words, fault
    for status, _, words in outcomes["encode fails"]:
        assert status == 5
        assert "ValueError: planted in encode" in words


def test_who_is_left_says_why(outcomes: Outcomes) -> None:
    reasons(outcomes)


def test_a_decision_that_differs_between_ranks_is_an_error_on_each(outcomes: Outcomes) -> None:
    assert [outcome[0] for outcome in outcomes["disagrees"]] == [5, 5]


@pytest.mark.parametrize("order", ORDERS)
def test_groups_may_begin_in_another_order_on_each_rank(outcomes: Outcomes, order: str) -> None:
    assert [outcome and (outcome[0], outcome[2]) for outcome in outcomes[order]] == [(0, "")] * 2


@pytest.mark.long
def test_a_hundred_tries(tmp_path: Path) -> None:
    """Each fault twenty times: a crash at the end of an interpreter, or a hang, may come only now and then."""
    done = subprocess.run([sys.executable, str(WORKER), str(tmp_path), "20"], timeout=1800, check=False)
    assert done.returncode == 0
    tries = json.loads((tmp_path / "faults.json").read_text(encoding="utf-8"))
    assert len(tries) == 20
    for outcomes in tries:
        for fault in (*FAULTS, *ORDERS):
            check(outcomes, fault)
        reasons(outcomes)
    for fault in FAULTS:  # one that waits longer than its group does so in every try, on a busy machine too
        assert min(outcomes[fault][0][1] for outcomes in tries) < 2 * TIMEOUT_S, fault
