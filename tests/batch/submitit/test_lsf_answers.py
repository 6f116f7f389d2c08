"""Tests of LSF's states and reasons, in all formats of bjobs and bhist."""

import datetime

import pytest

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf_answers import (
    STATES,
    TERMINATIONS,
    lookup,
    read_delimited,
    read_history,
    read_table,
    read_time,
    word,
)
from hpcbench.contract.state import State

NOW = datetime.datetime(2026, 11, 21, 7, 0, tzinfo=datetime.timezone.utc)

ROWS = [
    ("PEND", State.PENDING, True),
    ("WAIT", State.PENDING, True),
    ("PROV", State.PENDING, True),
    ("RUN", State.RUNNING, True),
    ("PSUSP", State.PENDING, True),
    ("USUSP", State.SUSPENDED, True),
    ("SSUSP", State.SUSPENDED, True),
    ("UNKWN", State.UNKNOWN, False),
    ("ZOMBI", State.LOST, False),
    ("DONE", State.COMPLETED, False),
    ("EXIT", State.FAILED, False),
    ("DANCE", State.UNKNOWN, False),
]


@pytest.mark.parametrize(("theirs", "ours", "alive"), ROWS)
def test_each_state(theirs: str, ours: State, alive: bool) -> None:
    assert word(theirs).state is word(theirs.lower()).state is ours
    assert ours.alive is alive
    [row] = read_table(f"JOBID USER STAT QUEUE\n7 me {theirs} q\n").values()
    assert row.state is ours


def test_no_state_is_without_a_row() -> None:
    assert {row[0] for row in ROWS} == {*STATES, "DANCE"}


@pytest.mark.parametrize(
    ("term", "state"),
    [
        ("TERM_RUNLIMIT", State.TIMED_OUT),
        ("TERM_DEADLINE", State.TIMED_OUT),
        ("TERM_CPULIMIT", State.TIMED_OUT),
        ("TERM_WINDOW", State.TIMED_OUT),
        ("TERM_OWNER", State.CANCELLED),
        ("TERM_ADMIN", State.CANCELLED),
        ("TERM_FORCE_OWNER", State.CANCELLED),
        ("TERM_FORCE_ADMIN", State.CANCELLED),
        ("TERM_BUCKET_KILL", State.CANCELLED),
        ("TERM_ORPHAN_SYSTEM", State.CANCELLED),
        ("TERM_MEMLIMIT", State.OUT_OF_MEMORY),
        ("TERM_SWAP", State.OUT_OF_MEMORY),
        ("TERM_ZOMBIE", State.NODE_FAILED),
        ("TERM_CSM_ALLOC", State.NODE_FAILED),  # retry submits these again
        ("TERM_PREEMPT", State.PREEMPTED),
        ("TERM_REQUEUE_OWNER", State.PREEMPTED),
        ("TERM_REQUEUE_ADMIN", State.PREEMPTED),
        ("TERM_RC_RECLAIM", State.PREEMPTED),
        ("TERM_EXTERNAL_SIGNAL", State.FAILED),
        ("TERM_SOMETHING_NEW", State.FAILED),
    ],
)
def test_terminations(term: str, state: State) -> None:
    message = f"{term}: job killed for a reason"
    for exit_status in (None, 0, 1, 130, 137, 140):
        assert word("EXIT", exit_status, message) == JobStatus(state, message, exit_status or None)
    assert term in TERMINATIONS or state is State.FAILED


def test_no_termination_is_without_a_row() -> None:
    mark = test_terminations.pytestmark[0]  # type: ignore[attr-defined]
    assert set(TERMINATIONS) <= {row[0] for row in mark.args[1]}


@pytest.mark.parametrize(
    ("status", "state"), [(140, State.TIMED_OUT), (130, State.CANCELLED), (137, State.FAILED), (None, State.FAILED)]
)
def test_exit_without_a_reason(status: int | None, state: State) -> None:
    reason = "exit 140: LSF's run limit" if status == 140 else "EXIT"
    assert word("EXIT", status) == JobStatus(state, reason, status)


HEADER = "JOBID^JOBINDEX^STAT^EXIT_CODE^SUBMIT_TIME^START_TIME^FINISH_TIME^RUN_TIME^MAX_MEM^EXEC_HOST^JOB_NAME"
HEADER += "^EXIT_REASON^PEND_REASON\n"
KILLED = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
DELIMITED = f"""\
*** Maintenance on Tuesday ^ be warned ***
123^0^BANNER
{HEADER}\
12345678^0^RUN^-^Nov 21 06:29^Nov 21 06:30^Nov 21 08:30 L^60 second(s)^1.2 Gbytes^n1:n2^one^-^-
223^4^EXIT^3^Nov 21 06:29^Nov 21 06:30^Nov 21 06:41^660 second(s)^-^40*n1^x[4]^{KILLED}^-
223^5^PEND^-^Nov 21 06:29^-^-^-^-^-^x[5]^-^Job's resource requirements not satisfied: 3 hosts; a ^ b;
224^0^EXIT^^Dec 31 23:59^Dec 31 23:59^Jan  1 00:10^-^-^n1^y^-^-
Job <99> is not found
225^0^DONE^-^Nov 21 06:29^Nov 21 06:30^Nov 21 06:41^-^-^n1^y^-^-
226[2]^0^SSUSP^-^-^Nov 21 06:30^-^-^-^n1^y[2]^-^-
"""


def test_delimited() -> None:
    statuses = read_delimited(DELIMITED, NOW)
    assert set(statuses) == {"12345678", "223[4]", "223[5]", "224", "225", "226[2]"}
    assert statuses["12345678"] == JobStatus(
        State.RUNNING,
        start="2026-11-21T06:30:00Z",
        hosts="n1:n2",
        accounting={"run_time": "60 second(s)", "max_mem": "1.2 Gbytes", "submit_time": "2026-11-21T06:29:00Z"},
    )
    assert statuses["223[4]"].state is State.TIMED_OUT
    assert (statuses["223[4]"].exit, statuses["223[4]"].end) == (3, "2026-11-21T06:41:00Z")
    assert statuses["223[4]"].reason.endswith("LSF run time limit")
    assert statuses["223[5]"].reason.endswith("a ^ b;")
    assert statuses["224"] == JobStatus(
        State.FAILED,
        "EXIT",
        start="2025-12-31T23:59:00Z",
        end="2026-01-01T00:10:00Z",
        hosts="n1",
        accounting={"submit_time": "2025-12-31T23:59:00Z"},
    )
    assert statuses["225"].state is State.COMPLETED
    assert statuses["226[2]"].state is State.SUSPENDED


SHORT = """\
Welcome to the cluster
JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
2345678 alice   RUN   normal     login1      n1          *_hpcbench Nov 21 06:30
                                             n2
                                             n3
124     alice   PEND  normal     login1                  *cbench[3] Nov 21 06:30
124     alice   EXIT  normal     login1      n4          *cbench[4] Nov 21 06:30
"""

WIDE = """\
JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
12345678 alice_with_a_long_name RUN   normal     login1 n1:n2 a_long_name_of_a_job Nov 21 06:30
124     alice   PEND  normal     login1         -        name[3]    Nov 21 06:30
125     alice   DONE  normal     login1      n4          other      Nov 21 06:30
Job <99999> is not found
"""


def test_tables() -> None:
    short, wide = read_table(SHORT), read_table(WIDE, wide=True)
    assert short == {
        "2345678": JobStatus(State.RUNNING, hosts="n1:n2:n3"),
        "124[3]": JobStatus(State.PENDING),
        "124[4]": JobStatus(State.FAILED, "EXIT", hosts="n4"),
    }
    assert wide == {
        "12345678": JobStatus(State.RUNNING, hosts="n1:n2"),
        "124[3]": JobStatus(State.PENDING),
        "125": JobStatus(State.COMPLETED, exit=0, hosts="n4"),
    }


@pytest.mark.parametrize("text", ["", "No unfinished job found\n", "A banner\nof 2 lines RUN\n", SHORT.splitlines()[1]])
def test_no_rows(text: str) -> None:
    assert read_table(text) == read_delimited(text, NOW) == read_history(text, NOW) == {}


def test_ids_of_more_than_seven_digits() -> None:
    statuses = read_table(SHORT)
    assert lookup(statuses, "12345678") == lookup(statuses, "2345678") == JobStatus(State.RUNNING, hosts="n1:n2:n3")
    assert lookup(statuses, "345678") is None
    array = read_table(SHORT.replace("124 ", "2000124 ").replace("2000124 ", "2000124 "))
    assert lookup(array, "12000124[3]") == JobStatus(State.PENDING)


HISTORY = """\

Job <123>, Job Name <a_name_that_is_long>, User <alice>, Project <default>, Command <#!/bin/
                     bash;#BSUB -W 10>
Fri Nov 21 06:30:00: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>;
Fri Nov 21 06:30:05: Dispatched 2 Task(s) on Host(s) <n1> <n2>, Allocated 2 Slot(s
                     ) on Host(s) <n1> <n2>, Effective RES_REQ <select[type == any
                     ]>;
Fri Nov 21 06:30:06: Starting (Pid 4711);
Fri Nov 21 06:30:06: Running with execution home </home/alice>, Execution CWD </h>;
Fri Nov 21 06:40:07: Exited with exit code 140. The CPU time used is 0.1 seconds;
Fri Nov 21 06:40:07: Completed <exit>; TERM_RUNLIMI
                     T: job killed after reaching LSF run time limit;

Summary of time in seconds spent in various states by  Fri Nov 21 06:40:07
  PEND     PSUSP    RUN      USUSP    SSUSP    UNKWN    TOTAL
  5        0        601      0        0        0        606
------------------------------------------------------------------------------

Job <124[3]>, Job Name <x[3]>, User <alice>, Project <default>, Command <c>
Fri Nov 21 06:30:00: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>;
Fri Nov 21 06:30:05: [3] started on <n1>, Execution Home </home/alice>, Execution CWD </h>;
Fri Nov 21 06:31:05: Done succe
                     ssfully. The CPU time used is 0.0 seconds;
------------------------------------------------------------------------------

Job <125>, User <alice>, Project <default>, Command <c>
Fri Nov 21 06:30:00: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>;
Fri Nov 21 06:30:05: Dispatched 1 Task(s) on Host(s) <n1>, Allocated 1 Slot(s) on Host(s) <n1>;
Fri Nov 21 06:31:05: Exited with exit code 1. The CPU time used is 0.0 seconds;
Fri Nov 21 06:31:05: Pending: Job has been requeued;
------------------------------------------------------------------------------

Job <126>, User <alice>, Project <default>, Command <c>
Fri Nov 21 06:30:00: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>;
Fri Nov 21 06:31:05: Completed <exit>; TERM_OWNER: job killed by owner;
------------------------------------------------------------------------------
No matching job found
"""


def test_history() -> None:
    statuses = read_history(HISTORY, NOW)
    assert statuses == {
        "123": JobStatus(
            State.TIMED_OUT,
            "TERM_RUNLIMIT",
            140,
            "2026-11-21T06:30:05Z",
            "2026-11-21T06:40:07Z",
            "n1:n2",
            restarts=0,
        ),
        "124[3]": JobStatus(State.COMPLETED, "", 0, "2026-11-21T06:30:05Z", "2026-11-21T06:31:05Z", "n1", restarts=0),
        "125": JobStatus(State.PENDING, hosts="n1", restarts=1),
        "126": JobStatus(State.CANCELLED, "TERM_OWNER", end="2026-11-21T06:31:05Z", restarts=0),
    }


@pytest.mark.parametrize(
    ("cell", "meant"),
    [
        ("Nov 21 06:30", "2026-11-21T06:30:00Z"),
        ("Nov 22 06:30", "2026-11-22T06:30:00Z"),  # clocks differ
        ("Nov 25 06:30", "2025-11-25T06:30:00Z"),
        ("Feb 29 06:30", None),
        ("Feb 29 06:30:07 2024", "2024-02-29T06:30:07Z"),
        ("Fri Nov  1 06:30:07", "2026-11-01T06:30:07Z"),
        ("-", None),
        ("", None),
    ],
)
def test_times(cell: str, meant: str | None) -> None:
    assert read_time(cell, NOW) == meant


OLD_FORMS = """
Job <7>, Job Name <s>, User <me>, Project <default>, Command <x>
Mon Nov 23 10:00:00: Submitted from host <l1>, to Queue <normal>;

 RUNLIMIT
 30.0 min of l1
Mon Nov 23 10:00:05: {dispatched};
Mon Nov 23 10:00:05: Starting (Pid 4711);
{said}Mon Nov 23 {end}: Exited by signal 2. The CPU time used is 0.1 seconds;

Summary of time in seconds spent in various states by  Mon Nov 23 10:31:00
"""


@pytest.mark.parametrize(
    ("dispatched", "hosts"),
    [
        ("Dispatched to <n1>", "n1"),
        ("Dispatched to 2 Hosts/Processors <n1> <n2>", "n1:n2"),
        ("[1] started on <n1>", "n1"),
        ("Dispatched 2 Task(s) on Host(s) <n1> <n2>, Allocated 2 Slot(s) on Host(s) <n1> <n2>", "n1:n2"),
    ],
)
def test_the_hosts_of_all_forms_of_a_dispatch(dispatched: str, hosts: str) -> None:
    text = OLD_FORMS.format(dispatched=dispatched, said="", end="10:30:07")
    assert read_history(text, NOW)["7"].hosts == hosts


def test_signal_2_at_the_run_limit_is_the_limit_and_before_it_a_cancel() -> None:
    states = {}
    asked = "Mon Nov 23 10:10:00: Signal <KILL> requested by user or administrator <me>;\n"
    for name, line, end in (("limit", "", "10:30:07"), ("early", "", "10:10:00"), ("user", asked, "10:30:07")):
        text = OLD_FORMS.format(dispatched="Dispatched to <n1>", said=line, end=end)
        states[name] = read_history(text, NOW)["7"]
    assert (states["limit"].state, states["limit"].reason) == (State.TIMED_OUT, "LSF's run limit")
    assert states["early"].state is State.CANCELLED
    assert (states["user"].state, states["user"].reason) == (State.CANCELLED, "Signal <KILL> requested by user")


def test_exit_140_is_said_to_be_the_run_limit() -> None:
    assert word("EXIT", 140).reason == "exit 140: LSF's run limit"
    assert word("EXIT", 140, "TERM_RUNLIMIT: job killed").reason == "TERM_RUNLIMIT: job killed"
