"""Why a run failed: what launchers and interpreters say when they refuse, each as its program prints it."""

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
    ("status", "said", "reason", "line"),
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
        # A number that is a signal elsewhere is none where the launcher says why.
        (7, "launcher: no licence left\n", "launcher: no licence left", 1),
    ],
)
def test_a_launcher_that_refuses_is_quoted(tmp_path: Path, status: int, said: str, reason: str, line: int) -> None:
    errors, log = tmp_path / "err.txt", tmp_path / "log.txt"
    errors.write_text(said)
    log.write_text("")
    found = diagnose(status, errors, log)
    assert found.reason.startswith(f"exit status {status}: {reason}")
    assert found.where == f"{errors}:{line}"


def test_what_a_launcher_prints_to_standard_output_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text("\n---\n")
    (tmp_path / "log.txt").write_text("jsrun: Error: not enough resources\n")
    found = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (found.reason, found.where) == (
        "exit status 1: jsrun: Error: not enough resources",
        f"{tmp_path / 'log.txt'}:1",
    )


def test_a_run_that_had_begun_gives_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(json.dumps({"event": "start"}) + "\nPlease see the FAQ page\n")
    (tmp_path / "err.txt").write_text("an error long past\nthe disk is full\n\nAbort(1) on node 0: MPI_Abort\n")
    found = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (found.reason, found.where) == ("exit status 1: the disk is full", f"{tmp_path / 'err.txt'}:2")


def test_the_workers_word_comes_before_that_of_a_launcher_which_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(
        "hpcbench.train: n1: 2 ranks x 4 threads on 2 cores\nsrun: Job step aborted: Waiting up to 3 seconds\n"
        "srun: error: n1: tasks 0-1: Killed\n"
    )
    found = diagnose(2, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (found.reason, found.where) == ("n1: 2 ranks x 4 threads on 2 cores", f"{tmp_path / 'err.txt'}:1")


@pytest.mark.parametrize("said", ["", "\n\n", f"{RULER}\n", "srun: got SIGCONT\n", "WARNING: slow network\n"])
def test_noise_is_no_reason(tmp_path: Path, said: str) -> None:
    (tmp_path / "err.txt").write_text(said)
    found = diagnose(3, tmp_path / "err.txt", tmp_path / "log.txt")
    assert (found.reason, found.where) == ("exit status 3, and nothing says why", None)


BLAUNCH = "[mpiexec@n1] HYDU_create_process (lib/utils/launch.c:74): execvp error on file /lsf/blaunch (No such file)\n"


@pytest.mark.parametrize("status", [9, 124, 130, 137, 140, 143])
def test_a_launcher_that_was_ended_before_its_ranks_began_has_said_why(tmp_path: Path, status: int) -> None:
    """It waits for ranks that it could not start, until somebody ends it."""
    (tmp_path / "err.txt").write_text(BLAUNCH)
    (tmp_path / "log.txt").write_text("")
    found = diagnose(status, tmp_path / "err.txt", tmp_path / "log.txt")
    assert found.reason == f"exit status {status}: execvp error on file /lsf/blaunch (No such file)"


def test_the_wrong_interface_is_named_and_not_what_is_said_around_it(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_text(
        "srun: error: n1: cannot lock the shared segment: No such file or directory\n"
        "slurmstepd: error: mpi/pmix_v4: can not load PMIx library\nsrun: error: n1: task 0: Exited with exit code 1\n"
    )
    (tmp_path / "log.txt").write_text("")
    found = diagnose(1, tmp_path / "err.txt", tmp_path / "log.txt")
    assert found.reason == "exit status 1: slurmstepd: error: mpi/pmix_v4: can not load PMIx library"
