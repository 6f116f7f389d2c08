"""Tests of the output formats of the fake bjobs and bhist."""

import json
import time
from collections.abc import Callable

import pytest
from fakes import Fake
from fakes.state import EXITED, RUNNING, WAITING

HEADER = "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME"


def submit(fake: Fake, body: str, *options: str) -> None:
    """Queue a script."""
    done = fake.run("bsub", *options, stdin=f"#!/bin/bash\n{body}\n".encode())
    assert done.returncode == 0, done.stderr


def test_short_table_cuts_names_and_takes_a_line_per_host(lsf: Fake) -> None:
    submit(lsf, "sleep 60", "-J", "a-rather-long-name", "-nnodes", "2")
    lsf.wait_for("1", RUNNING)
    header, first, second, third = lsf.run("bjobs").stdout.splitlines()
    assert header == HEADER
    assert first.split()[:7] == ["1", lsf.config.user[:7], "RUN", "normal", "login1", "launch1", "*long-name"]
    assert (second, third) == (" " * 45 + "40*node1", " " * 45 + "40*node2")
    assert lsf.run("bjobs", "-noheader").stdout.splitlines()[0] == first


def test_wide_table_cuts_nothing(lsf: Fake) -> None:
    submit(lsf, "sleep 60", "-J", "a-rather-long-name", "-nnodes", "2")
    submit(lsf, "sleep 60", "-nnodes", "4", "-J", "waits")
    lsf.wait_for("1", RUNNING)
    header, running, pending = lsf.run("bjobs", "-w").stdout.splitlines()
    assert header == HEADER
    assert running.split()[5:7] == ["launch1:40*node1:40*node2", "a-rather-long-name"]
    assert pending.split()[2:7] == ["PEND", "normal", "login1", "-", "waits"]


def test_chosen_fields(lsf: Fake) -> None:
    submit(lsf, "exit 3", "-J", "name|with|bars")
    submit(lsf, "sleep 60")
    lsf.wait_for("1", EXITED)
    lsf.wait_for("2", RUNNING)
    form = "jobid stat exit_code exit_reason job_name delimiter='|'"
    done = lsf.run("bjobs", "-a", "-o", form)
    assert done.stdout.splitlines() == [
        "JOBID|STAT|EXIT_CODE|EXIT_REASON|JOB_NAME",
        "1|EXIT|3|-|name|with|bars",
        "2|RUN|-|-|/bin/bash",
    ]
    cut = lsf.run("bjobs", "-noheader", "-o", "jobid:7 stat:5 job_name:6", "1").stdout
    assert cut == "1       EXIT  *|bars\n"
    bad = lsf.run("bjobs", "-o", "jobid colour")
    assert (bad.returncode, bad.stdout) == (255, "")
    assert "Bad field name: colour" in bad.stderr


def test_json(lsf: Fake) -> None:
    submit(lsf, "true")
    lsf.wait()
    done = lsf.run("bjobs", "-json", "-o", "jobid stat exit_code", "1", "99")
    assert json.loads(done.stdout) == {
        "COMMAND": "bjobs",
        "JOBS": 2,
        "RECORDS": [
            {"JOBID": "1", "STAT": "DONE", "EXIT_CODE": ""},
            {"JOBID": "99", "ERROR": "Job <99> is not found"},
        ],
    }
    assert "cannot be used with -noheader" in lsf.run("bjobs", "-json", "-noheader", "-o", "jobid").stderr


def test_one_unknown_id_does_not_hide_the_others(lsf: Fake) -> None:
    submit(lsf, "true")
    lsf.wait()
    done = lsf.run("bjobs", "-a", "-noheader", "-o", "jobid stat delimiter='^'", "1", "99999")
    assert done.stdout == "1^DONE\n"
    assert done.stderr == "Job <99999> is not found\n"
    assert done.returncode == 255


def test_nothing_to_show(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf")
    done = lsf.run("bjobs")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No unfinished job found\n")
    assert lsf.run("bjobs", "-a").returncode == 255
    other = fake_of("lsf", flavour="lsf-like").run("bjobs")
    assert (other.returncode, other.stderr) == (254, "No running job found\n")


def test_elements_of_an_array(lsf: Fake) -> None:
    submit(lsf, "exit $LSB_JOBINDEX", "-J", "arr[2-4]")
    lsf.wait()
    rows = lsf.run("bjobs", "-a", "-noheader", "-o", "jobid jobindex job_name exit_code delimiter=';'").stdout
    assert rows.splitlines() == ["1;2;arr[2];2", "1;3;arr[3];3", "1;4;arr[4];4"]
    assert lsf.run("bjobs", "-noheader", "-o", "job_name delimiter=';'", "1[3]").stdout == "arr[3]\n"
    assert lsf.run("bjobs", "1[9]").stderr == "Job <1[9]> is not found\n"
    assert lsf.run("bjobs", "-a", "-noheader", "-J", "arr[4]", "-o", "jobindex delimiter=';'").stdout == "4\n"
    assert lsf.run("bjobs", "-J", "missing").stderr == "Job <missing> is not found\n"


@pytest.mark.parametrize("flavour", ["old", "lsf-like"])
def test_features_that_older_and_other_variants_lack(fake_of: Callable[..., Fake], flavour: str) -> None:
    lsf = fake_of("lsf", flavour=flavour)
    submit(lsf, "true")
    lsf.wait()
    done = lsf.run("bjobs", "-json", "-o", "jobid", "1")
    assert (done.returncode, done.stdout) == (255, "")
    assert "bjobs: illegal option -- json" in done.stderr
    done = lsf.run("bjobs", "-o", "jobid exit_code", "1")
    assert done.stdout == ""
    assert done.returncode == (99 if flavour == "old" else 255)
    assert lsf.run("bjobs", "-o", "jobid stat delimiter='|'", "1").returncode == (0 if flavour == "old" else 255)
    assert lsf.run("bjobs", "-a", "-w").stdout.splitlines()[1].split()[2] == "DONE"


def test_long_and_history_of_a_killed_job(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", minute=0.1)
    submit(lsf, "sleep 60", "-W", "1", "-J", "late")
    lsf.wait()
    for text in (lsf.run("bjobs", "-l", "1").stdout, lsf.run("bhist", "-l", "1").stdout):
        joined = text.replace("\n" + " " * 21, "")
        assert "Job <1>, Job Name <late>" in joined
        assert "Exited with exit code 140. The CPU time used is" in joined
        assert "Completed <exit>; TERM_RUNLIMIT: job killed after reaching LSF run time limit;" in joined
    assert "Summary of time in seconds spent in various states by" in lsf.run("bhist", "-l", "1").stdout
    assert lsf.run("bhist", "77").stderr == "No matching job found\n"
    assert lsf.run("bhist").stdout.splitlines()[2].split()[:3] == ["1", lsf.config.user[:7], "late"]


def test_finished_jobs_leave_and_history_keeps_them(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", clean_period=0.5)
    submit(lsf, "exit 5")
    ended = lsf.wait()[0].ended
    while time.time() <= ended + 0.5:
        time.sleep(0.05)
    done = lsf.run("bjobs", "-a", "1")
    assert (done.returncode, done.stdout, done.stderr) == (255, "", "Job <1> is not found\n")
    assert "Exited with exit code 5." in lsf.run("bhist", "-l", "1").stdout


def test_faults_that_affect_queries(lsf: Fake) -> None:
    submit(lsf, "exit 4")
    lsf.wait()
    ask = ("bjobs", "-a", "-noheader", "-o", "jobid stat exit_code delimiter='|'", "1")
    lsf.order("state", job="1", word="UNKWN", times=2)
    assert [lsf.run(*ask).stdout for _ in range(3)] == ["1|UNKWN|4\n", "1|UNKWN|4\n", "1|EXIT|4\n"]
    lsf.order("no_exit_code", job="*", times=1)
    assert lsf.run(*ask).stdout == "1|EXIT|-\n"
    lsf.order("banner", program="bjobs", lines=["Maintenance on Tuesday"], times=1)
    assert lsf.run(*ask).stdout == "Maintenance on Tuesday\n1|EXIT|4\n"
    lsf.order("status", program="bjobs", status=255, times=1)
    done = lsf.run(*ask)
    assert (done.returncode, done.stdout) == (255, "1|EXIT|4\n")
    lsf.order("noise", program="bjobs", lines=["LSF is processing your request. Please wait ..."], times=1)
    assert lsf.run(*ask).stderr == "LSF is processing your request. Please wait ...\n"
    lsf.order("clean", job="1")
    assert lsf.run(*ask).stderr == "Job <1> is not found\n"
    assert lsf.run("bhist", "-l", "1").returncode == 0
    lsf.order("lose", job="1")
    assert lsf.run("bhist", "-l", "1").stderr == "No matching job found\n"
    lsf.withdraw("clean")
    lsf.withdraw("lose")
    assert lsf.run(*ask).stdout == "1|EXIT|4\n"


def test_dispatch_may_be_late(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", dispatch_delay=0.5)
    submit(lsf, "true")
    assert lsf.jobs[0].state == WAITING
    (job,) = lsf.wait()
    assert job.started - job.submitted >= 0.5
