"""Tests of Slurm's states and reasons, with output of Slurm 22.05."""

import pytest

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.slurm_answers import (
    SACCT_FIELDS,
    STATES,
    elements,
    merged,
    read_sacct,
    read_squeue,
    read_squeue_short,
    read_states,
    state,
)
from hpcbench.contract.state import State

ROWS = [
    ("PENDING", State.PENDING, True),
    ("CONFIGURING", State.PENDING, True),
    ("POWER_UP_NODE", State.PENDING, True),
    ("REQUEUED", State.PENDING, True),
    ("REQUEUE_HOLD", State.PENDING, True),
    ("REQUEUE_FED", State.PENDING, True),
    ("SPECIAL_EXIT", State.PENDING, True),
    ("RESV_DEL_HOLD", State.PENDING, True),
    ("EXPEDITING", State.PENDING, True),
    ("RUNNING", State.RUNNING, True),
    ("COMPLETING", State.RUNNING, True),
    ("RESIZING", State.RUNNING, True),
    ("SIGNALING", State.RUNNING, True),
    ("STAGE_OUT", State.RUNNING, True),
    ("SUSPENDED", State.SUSPENDED, True),
    ("STOPPED", State.SUSPENDED, True),
    ("COMPLETED", State.COMPLETED, False),
    ("FAILED", State.FAILED, False),
    ("TIMEOUT", State.TIMED_OUT, False),
    ("DEADLINE", State.TIMED_OUT, False),
    ("OUT_OF_MEMORY", State.OUT_OF_MEMORY, False),
    ("NODE_FAIL", State.NODE_FAILED, False),
    ("BOOT_FAIL", State.NODE_FAILED, False),
    ("LAUNCH_FAILED", State.NODE_FAILED, False),
    ("RECONFIG_FAIL", State.NODE_FAILED, False),
    ("PREEMPTED", State.PREEMPTED, False),
    ("CANCELLED", State.CANCELLED, False),
    ("REVOKED", State.UNKNOWN, False),
]


@pytest.mark.parametrize(("theirs", "ours", "alive"), ROWS)
def test_each_state(theirs: str, ours: State, alive: bool) -> None:
    [word] = read_squeue(f"7|{theirs}|0|0|N/A|N/A||None\n").values()
    assert word.state is ours is state(theirs.lower())
    assert word.state.alive is alive


@pytest.mark.parametrize(
    ("theirs", "reason", "remedy"),
    [
        ("PENDING", "BadConstraints", "check node: and scheduler: of the site file"),
        ("REQUEUE_HOLD", "launch failed requeued held", "run `scontrol release` to retry it"),
        ("PENDING", "PartitionNodeLimit", "change nodes:, walltime: or queue: in the study"),
        ("PENDING", "JobHeldAdmin", "run `scontrol release` to start it"),
    ],
)
def test_a_job_that_would_wait_for_ever_has_a_remedy(theirs: str, reason: str, remedy: str) -> None:
    [word] = read_squeue(f"7|{theirs}|0|0|N/A|N/A||{reason}\n").values()
    [short] = read_squeue_short(f"7|{theirs}||{reason}\n").values()
    assert word.state is State.PENDING and reason in word.reason and remedy in word.reason
    assert short.reason == word.reason


def test_a_job_that_only_waits_for_its_turn_has_none() -> None:
    [word] = read_squeue("7|PENDING|0|0|N/A|N/A||Priority\n").values()
    assert word.reason == "Priority"


def test_no_state_is_without_a_row() -> None:
    assert {row[0] for row in ROWS} == set(STATES)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("CANCELLED by 1000", State.CANCELLED),
        ("CANCELLED+", State.CANCELLED),
        ("OUT_OF_ME+", State.OUT_OF_MEMORY),
        ("COMPLETED+", State.COMPLETED),
        ("COMPLETI+", State.RUNNING),
        ("COMPL+", State.UNKNOWN),  # of two
        ("TIMEOUT+", State.TIMED_OUT),
        ("+", State.UNKNOWN),
        ("", State.UNKNOWN),
        ("DANCING", State.UNKNOWN),
    ],
)
def test_words_that_are_cut_or_unknown(theirs: str, ours: State) -> None:
    assert state(theirs) is ours


def test_an_unknown_word_is_the_reason() -> None:
    assert read_squeue("7|DANCING|0|0|N/A|N/A|n1|None\n")["7"] == JobStatus(
        State.UNKNOWN, reason="DANCING", hosts="n1", restarts=0
    )


SQUEUE = """\
4_[1,3-5%2]|PENDING|0|0|2026-11-21T18:51:00|2026-11-21T19:51:00||Resources
5|CANCELLED|0|0|2026-11-22T00:52:01|2026-11-22T00:52:01||JobHeldUser
20|FAILED|9|0|2026-11-21T15:53:32|2026-11-21T15:53:32|n2|JobLaunchFailure
21_0|FAILED|768|0|2026-11-21T15:53:32|2026-11-21T15:53:32|n[1-2]|NonZeroExitCode
22|RUNNING|0|2|2026-11-21T15:56:24|2026-11-21T16:56:24|n1|None
23|PENDING|0|0|N/A|N/A||ReqNodeNotAvail, UnavailableNodes:n[1|2]
24+0|RUNNING|0|0|2026-11-21T15:56:24|2026-11-21T16:56:24|n1|None
24+1|RUNNING|0|0|2026-11-21T15:56:24|2026-11-21T16:56:24|n2|None
CLUSTER: elsewhere
a banner | with bars|in|it|||||
"""


def test_squeue() -> None:
    statuses = read_squeue(SQUEUE)
    assert set(statuses) == {"4_1", "4_3", "4_4", "4_5", "5", "20", "21_0", "22", "23", "24", "24+0", "24+1"}
    assert statuses["4_4"] == JobStatus(State.PENDING, "Resources", restarts=0)  # start and end are estimates
    assert statuses["5"].reason == "CANCELLED: JobHeldUser"
    assert statuses["5"].exit is statuses["5"].start is None  # it never started
    assert (statuses["20"].exit, statuses["21_0"].exit) == (137, 3)
    assert statuses["21_0"].hosts == "n[1-2]"
    assert statuses["22"] == JobStatus(State.RUNNING, start="2026-11-21T15:56:24Z", hosts="n1", restarts=2)
    assert statuses["23"].reason == "ReqNodeNotAvail, UnavailableNodes:n[1|2]"
    assert statuses["24"] == statuses["24+0"]


def test_why_a_cancelled_job_had_waited_is_not_why_it_was_cancelled() -> None:
    statuses = read_squeue("7|CANCELLED|0|0|N/A|N/A||Resources\n8|CANCELLED|0|0|N/A|N/A||DependencyNeverSatisfied\n")
    assert (statuses["7"].reason, statuses["8"].reason) == ("CANCELLED", "CANCELLED: DependencyNeverSatisfied")


def test_an_old_squeue() -> None:
    statuses = read_squeue_short("4_[2-3]|PENDING||Priority\n22|RUNNING|n1|None\n")
    assert statuses["4_3"] == JobStatus(State.PENDING, "Priority")
    assert statuses["22"] == JobStatus(State.RUNNING, hosts="n1")


@pytest.mark.parametrize(
    ("printed", "meant"),
    [
        ("123", ["123"]),
        ("123_4", ["123_4"]),
        ("123_[2-4%25]", ["123_2", "123_3", "123_4"]),
        ("123_[1,7-8]", ["123_1", "123_7", "123_8"]),
        ("123_[1-5:2]", ["123_1", "123_3", "123_5"]),
        ("123+1", ["123+1"]),
    ],
)
def test_elements(printed: str, meant: list[str]) -> None:
    assert list(elements(printed)) == meant


def sacct(*rows: str) -> str:
    """Return rows of sacct: id|state|exit|submit|start|end|elapsed|nodes|energy|memory|reason."""
    assert all(row.count("|") == len(SACCT_FIELDS) - 1 for row in rows)
    return "\n".join(rows) + "\n"


TIMES = "2026-11-21T15:51:44|2026-11-21T15:52:56|2026-11-21T15:53:16|20|n2"


def test_sacct() -> None:
    statuses = read_sacct(
        sacct(
            f"10|FAILED|3:0|{TIMES}|||None",
            f"10.batch|FAILED|3:0|{TIMES}|512|3316K|",
            f"10.extern|COMPLETED|0:0|{TIMES}|0|1M|",
            f"10.0|COMPLETED|0:0|{TIMES}|700|2.5G|",
            f"11|CANCELLED by 1000|0:15|{TIMES}|||None",
            "12_[3-4%2]|PENDING|0:0|2026-11-21T15:51:44|Unknown|Unknown|0|None assigned|||Resources",
        )
    )
    assert statuses["10"] == JobStatus(
        State.FAILED,
        "FAILED",
        exit=3,
        start="2026-11-21T15:52:56Z",
        end="2026-11-21T15:53:16Z",
        hosts="n2",
        accounting={
            "ExitCode": "3:0",
            "Submit": "2026-11-21T15:51:44Z",
            "Start": "2026-11-21T15:52:56Z",
            "End": "2026-11-21T15:53:16Z",
            "ElapsedRaw": "20",
            "NodeList": "n2",
            "MaxRSS": "2.5G",
            "ConsumedEnergyRaw": "700",
        },
    )
    assert (statuses["11"].state, statuses["11"].exit, statuses["11"].reason) == (
        State.CANCELLED,
        143,
        "CANCELLED by 1000",
    )
    assert statuses["12_4"].reason == "Resources"
    assert statuses["12_4"].start is None
    assert set(statuses) == {"10", "11", "12_3", "12_4"}


def test_no_meter_is_no_energy() -> None:
    [word] = read_sacct(sacct(f"10|COMPLETED|0:0|{TIMES}|0||None")).values()
    assert "ConsumedEnergyRaw" not in word.accounting


@pytest.mark.parametrize("step", ["10.batch", "10.0", "10.extern"])
def test_a_step_says_that_memory_ran_out(step: str) -> None:
    [word] = read_sacct(sacct(f"10|FAILED|1:0|{TIMES}|||None", f"{step}|OUT_OF_ME+|0:125|{TIMES}|||")).values()
    assert word.state is State.OUT_OF_MEMORY
    assert "OUT_OF_MEMORY" in word.reason


def test_a_step_s_trouble_is_not_the_job_s() -> None:
    [word] = read_sacct(
        sacct(f"10|COMPLETED|0:0|{TIMES}|||None", f"10.0|OUT_OF_MEMORY|0:125|{TIMES}|||", f"10.1|FAILED|1:0|{TIMES}|||")
    ).values()
    assert word.state is State.COMPLETED


def test_names() -> None:
    statuses = read_states("4_[1-2]|PENDING\n4_3|RUNNING\n7|CANCELLED by 1\n8+0|RUNNING\n\nCLUSTER: x\n")
    assert {job: word.state for job, word in statuses.items()} == {
        **dict.fromkeys(("4_1", "4_2"), State.PENDING),
        **dict.fromkeys(("4_3", "8+0"), State.RUNNING),
        "7": State.CANCELLED,
    }


def test_accounting_lags_behind_the_queue() -> None:
    listed = JobStatus(State.FAILED, "FAILED: NonZeroExitCode", exit=3, end="2026-11-21T15:53:16Z", restarts=1)
    assert merged(listed, JobStatus(State.RUNNING)).state is State.FAILED
    both = merged(listed, JobStatus(State.FAILED, "FAILED", accounting={"MaxRSS": "1M"}))
    assert both == JobStatus(
        State.FAILED, "FAILED: NonZeroExitCode", 3, end="2026-11-21T15:53:16Z", restarts=1, accounting={"MaxRSS": "1M"}
    )
