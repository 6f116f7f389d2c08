"""Tests that if a rank dies, exits, fails or disagrees, the remaining ranks exit in time and print a reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Outcomes = dict[str, list[Any]]
WORKER = Path(__file__).parent / "worker.py"
FAULTS = ("killed", "leaves", "stalls", "encode fails", "disagrees")
ORDERS = tuple(order + auto for order in ("other order", "two threads", "many rounds") for auto in ("", ", auto"))
"""Orders of calls that plain gloo supports."""
TIMEOUT_S, TRIES = 4, 10
"""Timeout in seconds for groups whose calls time out, and number of tries per fault."""


@pytest.fixture
def outcomes(played: dict[str, Any]) -> Outcomes:
    outcomes: Outcomes = played["faults"]
    return outcomes


def check(outcomes: Outcomes, fault: str) -> None:
    """Assert that no rank hangs or crashes."""
    for rank, (status, _, message) in enumerate(outcomes[fault]):
        assert status is not None, f"{fault}: rank {rank} hangs; the other rank: {outcomes[fault][1 - rank]}; {message}"
        expected = (3,) if (fault, rank) == ("killed", 1) else (0, 5)
        assert status in expected, f"{fault}: rank {rank} ended with {status}: {message}"
        if status == 5:
            assert message, f"{fault}: rank {rank}"


@pytest.mark.parametrize("fault", FAULTS)
def test_no_rank_hangs_or_crashes(outcomes: Outcomes, fault: str) -> None:
    check(outcomes, fault)


def check_reasons(outcomes: Outcomes) -> None:
    """Assert that ranks report reasons.

    A rank whose peer has exited reports a reason. The reason of a failed rank reaches its peer.
    """
    for fault in ("killed", "leaves", "stalls", "encode fails"):
        status, _, message = outcomes[fault][0]
        assert status == 5 and "Error" in message, fault
    for status, _, message in outcomes["encode fails"]:
        assert status == 5
        assert "ValueError: planted in encode" in message


def test_remaining_ranks_report_the_reason(outcomes: Outcomes) -> None:
    check_reasons(outcomes)


def test_a_decision_that_differs_between_ranks_is_an_error_on_each(outcomes: Outcomes) -> None:
    assert [outcome[0] for outcome in outcomes["disagrees"]] == [5, 5]


def check_order(outcomes: Outcomes, order: str) -> None:
    assert [(status, message) for status, _, message in outcomes[order]] == [(0, "")] * 2, order


@pytest.mark.parametrize("order", ORDERS)
def test_groups_may_begin_in_different_orders(outcomes: Outcomes, order: str) -> None:
    check_order(outcomes, order)


@pytest.mark.long
def test_each_fault_several_times(tmp_path: Path) -> None:
    """Run each fault several times, because a hang, or a crash during interpreter shutdown, may be rare."""
    done = subprocess.run([sys.executable, str(WORKER), str(tmp_path), str(TRIES)], timeout=3600, check=False)
    assert done.returncode == 0
    tries = json.loads((tmp_path / "faults.json").read_text(encoding="utf-8"))
    assert len(tries) == TRIES
    for outcomes in tries:
        for fault in (*FAULTS, *ORDERS):
            check(outcomes, fault)
        for order in ORDERS:
            check_order(outcomes, order)
        check_reasons(outcomes)
    for fault in FAULTS:  # a rank that exceeds its group's timeout does so in every try, even on a busy machine
        assert min(outcomes[fault][0][1] for outcomes in tries) < 2 * TIMEOUT_S, fault
