"""Tests of failure reasons, derived from original messages of launchers and interpreters."""

import json
from pathlib import Path

import pytest

from hpcbench.contract.reason import diagnose

RULER = "-" * 74
ROOT = f"""{RULER}
mpirun has detected an attempt to run as root.

Running as root is *strongly* discouraged as any mistake (e.g., in
defining TMPDIR) or bug can result in catastrophic damage to the OS
file system, leaving your system in an unusable state.

You can override this protection by adding the --allow-run-as-root option
to the cmd line or by setting two environment variables in the following way.
{RULER}
"""
SLOTS = f"""{RULER}
There are not enough slots available in the system to satisfy the 8
slots that were requested by the application:

  python

Either request fewer procs for your application, or make more slots
available for use.
{RULER}
"""
MISSING = f"""{RULER}
prterun was unable to find the specified executable file, and therefore did
not launch the job.  This error was first reported for process rank
0; it may have occurred for other processes as well.
{RULER}
"""
WARNED = f"""{RULER}
WARNING: No preset parameters were found for the device that Open MPI
detected:
  Local host: n1
{RULER}
/site/lib/x.py:3: UserWarning: an old library
module: loaded openmpi
[n1:4711] mca_base_component: cannot open shared object file: libpsm2.so.2
"""
PROXY = (
    "[proxy:0@n1] HYDU_create_process (/mpich/src/pm/hydra/lib/utils/launch.c:73): "
    "execvp error on file /no/such/python (No such file or directory)\n"
)
SRUN = (
    "srun: job 7 queued and waiting for resources\n"
    "srun: error: Unable to create step for job 7: Requested node configuration is not available\n"
    "srun: got SIGCONT\n"
)
STEP = (
    "slurmstepd-n2: error: execve(): /no/such/python: No such file or directory\n"
    "srun: error: n2: tasks 2-3: Exited with exit code 2\n"
)


@pytest.mark.parametrize(
    ("status", "message", "reason", "line"),
    [
        (1, ROOT, "mpirun has detected an attempt to run as root.", 2),
        (
            1,
            SLOTS,
            "There are not enough slots available in the system to satisfy the 8 "
            "slots that were requested by the application:",
            2,
        ),
        (
            1,
            MISSING,
            "prterun was unable to find the specified executable file, and therefore did not launch the job.",
            2,
        ),
        (1, WARNED, "[n1:4711] mca_base_component: cannot open shared object file: libpsm2.so.2", 8),
        (255, PROXY * 2, "execvp error on file /no/such/python (No such file or directory)", 1),
        (255, "[mpiexec@n1] match_arg (args.c:166): unrecognized argument bogus\n", "unrecognized argument bogus", 1),
        (1, SRUN, "srun: error: Unable to create step for job 7: Requested node configuration is not available", 2),
        (2, STEP, "slurmstepd-n2: error: execve(): /no/such/python: No such file or directory", 1),
        (
            127,
            "timeout: failed to run command 'mpiexec': No such file or directory\n",
            "timeout: failed to run command 'mpiexec': No such file or directory",
            1,
        ),
        (1, "/usr/bin/python3: No module named hpcbench\n", "/usr/bin/python3: No module named hpcbench", 1),
        # A number that means a signal elsewhere does not if the launcher states the reason.
        (7, "launcher: no licence left\n", "launcher: no licence left", 1),
    ],
)
def test_a_launcher_that_refuses_is_quoted(tmp_path: Path, status: int, message: str, reason: str, line: int) -> None:
    errors, log = tmp_path / "err.txt", tmp_path / "log.txt"
    errors.write_text(message)
    log.write_text("")
    failure = diagnose(status, errors, log)
    assert failure.reason.startswith(f"exit status {status}: {reason}")
    assert failure.where == f"{errors}:{line}"


def test_what_a_launcher_prints_to_standard_output_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text("\n---\n")
    (tmp_path / "log.txt").write_text("jsrun: Error: not enough resources\n")
    failure = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == (
        "exit status 1: jsrun: Error: not enough resources",
        f"{tmp_path / 'log.txt'}:1",
    )


def test_a_run_that_had_begun_gives_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(json.dumps({"event": "start"}) + "\nPlease see the FAQ page\n")
    (tmp_path / "err.txt").write_text("an error long past\nthe disk is full\n\nAbort(1) on node 0: MPI_Abort\n")
    failure = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == ("exit status 1: the disk is full", f"{tmp_path / 'err.txt'}:2")


def test_the_workers_word_comes_before_that_of_a_launcher_which_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(
        "hpcbench.train: n1: 2 ranks x 4 threads on 2 cores\nsrun: Job step aborted: Waiting up to 3 seconds\n"
        "srun: error: n1: tasks 0-1: Killed\n"
    )
    failure = diagnose(2, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == ("n1: 2 ranks x 4 threads on 2 cores", f"{tmp_path / 'err.txt'}:1")


@pytest.mark.parametrize("noise", ["", "\n\n", f"{RULER}\n", "srun: got SIGCONT\n", "WARNING: slow network\n"])
def test_noise_is_no_reason(tmp_path: Path, noise: str) -> None:
    (tmp_path / "err.txt").write_text(noise)
    failure = diagnose(3, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == ("exit status 3, without a message", None)


BLAUNCH = "[mpiexec@n1] HYDU_create_process (lib/utils/launch.c:74): execvp error on file /lsf/blaunch (No such file)\n"


@pytest.mark.parametrize("status", [9, 124, 130, 137, 140, 143])
def test_a_launcher_that_was_ended_before_its_ranks_began_has_said_why(tmp_path: Path, status: int) -> None:
    """The launcher waits for ranks that it could not start, until it is killed."""
    (tmp_path / "err.txt").write_text(BLAUNCH)
    (tmp_path / "log.txt").write_text("")
    failure = diagnose(status, tmp_path / "err.txt", tmp_path / "log.txt")
    assert failure.reason == f"exit status {status}: execvp error on file /lsf/blaunch (No such file)"


def test_the_wrong_interface_is_named_and_not_what_is_said_around_it(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(
        "srun: error: n1: cannot lock the shared segment: No such file or directory\n"
        "slurmstepd: error: mpi/pmix_v4: can not load PMIx library\nsrun: error: n1: task 0: Exited with exit code 1\n"
    )
    (tmp_path / "log.txt").write_text("")
    failure = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert failure.reason == "exit status 1: slurmstepd: error: mpi/pmix_v4: can not load PMIx library"


BINDING = """srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x000000000000FFFF.
srun: error: Task launch for StepId=7.8 failed on node n7: Unable to satisfy cpu bind request
srun: error: Application launch failed: Unable to satisfy cpu bind request
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 7.8 ON n6 CANCELLED AT 2025-03-05T11:08:03 ***
srun: error: n6: task 0: Killed
"""
NO_SUCH = """slurmstepd: error: execve(): /no/such/python: No such file or directory
slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-03-05T11:08:03 ***
srun: error: n1: tasks 1-3: Killed
"""


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (BINDING, "CPU binding outside of job step allocation, allocated CPUs are: 0x000000000000FFFF: set node.cores"),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-03-05T11:08:03 DUE TO NODE n2 FAILURE ***\n"
            "srun: error: Node failure on n2\nsrun: error: n1: tasks 0-3: Killed\n",
            "STEP 7.0 ON n1 CANCELLED AT 2025-03-05T11:08:03 DUE TO NODE n2 FAILURE",
        ),
        ("srun: error: Node failure on n2\nsrun: error: n1: task 1: Killed\n", "Node failure on n2"),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-03-05T11:08:03 DUE TO PREEMPTION ***\n"
            "srun: error: n1: tasks 0-3: Killed\n",
            "JOB 7 ON n1 CANCELLED AT 2025-03-05T11:08:03 DUE TO PREEMPTION",
        ),
        (
            "Traceback (most recent call last):\nKeyError: 'tokens'\nsrun: error: n1: tasks 0-3: Killed\n",
            "KeyError: 'tokens'",
        ),
        (
            "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:35230\n"
            "srun: error: n1: task 3: Segmentation fault\n",
            "rank 3 on n1 was killed by signal 11 (SEGV)",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error: remote process exited\nsrun: error: n1: task 3: Killed\n",
            "rank 3 on n1 was killed by signal 9 (KILL)",
        ),
        ("RuntimeError: Connection closed by peer [10.0.0.1]:35230\n", "RuntimeError: Connection closed by peer"),
        (
            "mpi4py.MPI.Exception: See the MPI_ERROR field in MPI_Status for the error code\n"
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
            "a rank was killed by signal 9 (KILL)",
        ),
        ("Exception: no data\nsrun: error: n1: task 1: Killed\n", "Exception: no data"),
    ],
)
def test_victims_do_not_hide_the_cause(tmp_path: Path, lines: str, reason: str, begun: bool) -> None:
    (tmp_path / "err.txt").write_text(lines)
    (tmp_path / "log.txt").write_text(json.dumps({"event": "start"}) + "\n" if begun else "")
    assert diagnose(137, tmp_path / "err.txt", tmp_path / "log.txt").reason.startswith(reason)


def test_a_launcher_that_could_not_start_the_ranks_has_said_so_before_it_ends_them(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(NO_SUCH)
    failure = diagnose(137, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == (
        "exit status 137: slurmstepd: error: execve(): /no/such/python: No such file or directory",
        f"{tmp_path / 'err.txt'}:1",
    )


def trace(rank: int, exception: str) -> str:
    return f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {exception}\n"


CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:35230"
TORCHRUN = """============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-05-26_11:02:26
  host      : n2
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 7089)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 7089
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-26_11:02:25
  host      : n1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {exit} (pid: 7090)
  error_file: <N/A>
  traceback : {why}
============================================================
"""
TO_ENABLE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@pytest.mark.parametrize(
    ("lines", "reason", "line"),
    [
        (trace(1, "KeyError: 'tokens'") + trace(0, CLOSED), "KeyError: 'tokens'", 2),
        (trace(0, CLOSED) + trace(1, "KeyError: 'tokens'"), "KeyError: 'tokens'", 4),
        (trace(2, "KeyError: 'tokens'") + trace(0, "ValueError: empty batch"), "KeyError: 'tokens'", 2),
        ("KeyError: 'x'\nValueError: empty\n", "KeyError: 'x'", 1),
        (
            trace(1, "KeyError: 'a'") + trace(2, "ValueError: b") + TORCHRUN.format(rank=2, exit=1, why=TO_ENABLE),
            "ValueError: b",
            4,
        ),
        (
            trace(0, "ValueError: caught") + trace(1, "KeyError: 'a'") + trace(0, "TypeError: fatal"),
            "KeyError: 'a'",
            4,
        ),
        ("Exception ignored in: <function f>\nAttributeError: x\nValueError: real\n", "ValueError: real", 3),
        (
            TORCHRUN.format(rank=0, exit=-7, why="Signal 7 (SIGBUS) received by PID 16609"),
            "rank 0 on n1: Signal 7 (SIGBUS) received by PID 16609",
            20,
        ),
    ],
    ids=[
        "first",
        "last is the cause",
        "two causes",
        "no labels",
        "torchrun names the rank",
        "the end of each rank",
        "ignored",
        "torchrun's signal",
    ],
)
def test_the_rank_that_failed_first_gives_the_reason(tmp_path: Path, lines: str, reason: str, line: int) -> None:
    (tmp_path / "err.txt").write_text(lines)
    failure = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (failure.reason, failure.where) == (reason, f"{tmp_path / 'err.txt'}:{line}")


PREFIXES = [
    "[default3]:[rank3]: ",
    "[rank3]: ",
    "[trainer3]:",
    "[1,3]<stderr>:",
    "[prterun-n1-4711@1,3]<stderr>: ",
    "Tue Mar  5 11:08:03 2024[1,3]<stderr>:",
    "19: ",
    " 3: [rank7]: ",
    "[3] ",
    "2025-05-26T11:02:25.394 ",
    "[2025-05-26 11:02:25,394] ",
    "3: 2025-05-26T11:02:25+02:00 ",
    "[11:02:25] ",
    "\x1b[31m[rank0]: \x1b[0m",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("hpcbench.train: run.json: ranks: 4 started, 8 asked for", "run.json: ranks: 4 started, 8 asked for"),
        (
            SLOTS.strip(),
            "exit status 1: There are not enough slots available in the system to satisfy the 8 slots that",
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=3.0", "out of memory: the scheduler killed a process"),
        ("mpirun noticed that process rank 2 with PID 7 on node n7 exited on signal 9 (Killed).", "rank 2 on n7 was"),
    ],
    ids=["exception", "worker", "launcher", "memory", "signal"],
)
def test_labels_of_launchers_hide_nothing(tmp_path: Path, prefix: str, lines: str, reason: str) -> None:
    later = (
        "W0526 11:02:26.000000 12 torch/distributed/elastic/api.py:900] Sending process 7089 closing signal SIGTERM\n"
    )
    (tmp_path / "err.txt").write_text("".join(f"{prefix}{line}\n" for line in lines.splitlines()) + later)
    (tmp_path / "log.txt").write_text("")
    assert diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt").reason.startswith(reason)


AFFINITY = f"""{RULER}
The specified LSF affinity file contained a node (server1) that is not in your
allocation. We therefore cannot map a process rank to it. Please
check your allocation and affinity file to ensure the latter only
contains allocated nodes.
{RULER}
"""
PRIMARY = f"""{RULER}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULER}
"""
WRAPPED = """loading modules
The resource manager of this cluster has found that the nodes
which the job asks for cannot be given to it.
"""


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            AFFINITY,
            "The specified LSF affinity file contained a node (server1) that is not in your allocation: unset "
            "LSB_AFFINITY_HOSTFILE, the path of this file, in setup: of the site file",
        ),
        (SLOTS, "There are not enough slots available in the system to satisfy the 8 slots"),
        (ROOT + PRIMARY, "mpirun has detected an attempt to run as root."),
    ],
)
def test_a_wrapped_message_begins_at_its_beginning(tmp_path: Path, lines: str, reason: str, begun: bool) -> None:
    (tmp_path / "err.txt").write_text(lines)
    (tmp_path / "log.txt").write_text(json.dumps({"event": "start"}) + "\n" if begun else "")
    failure = diagnose(213, tmp_path / "err.txt", tmp_path / "log.txt")
    assert failure.reason.startswith(f"exit status 213: {reason}") and failure.where == f"{tmp_path / 'err.txt'}:2"


def test_a_wrapped_sentence_outside_of_rulers_begins_at_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(WRAPPED)
    assert diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt").reason == (
        "exit status 1: The resource manager of this cluster has found that the nodes which the job asks for "
        "cannot be given to it."
    )
