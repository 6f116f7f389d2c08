"""Tests of the fake bsub: its input, its refusals with their messages, and its records."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fake, FakeLSF

from hpcbench.errors import UserError

NOT = "Job not submitted."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-W 01:00:00", f"01:00:00: Bad RUNLIMIT specification. {NOT}"),
        ("-W 1h", f"1h: Bad RUNLIMIT specification. {NOT}"),
        ("-W 3:00 -q debug", f"RUNLIMIT: Cannot exceed queue's hard limit(s). {NOT}"),
        ("-nodes 2", f"bsub: illegal option -- nodes\n{NOT}"),
        ("--nnodes=2", f"bsub: illegal option -- nnodes=2\n{NOT}"),
        ("-n 4", "30: The '-n <slots>' flag is no longer supported."),
        ("-n 4 -nnodes 2", "when CSM Easy Mode job submission is enabled"),
        ("-nnodes 2 -R span[ptile=1]", "when CSM Easy Mode job submission is enabled"),
        ("-nnodes two", f"Bad argument for option -nnodes. {NOT}"),
        ("-nnodes 5", f"Too many processors requested. {NOT}"),
        ("-J a[b", f"Bad job name. {NOT}"),
        ("-J a[0-3]", f"Bad job name. {NOT}"),
        ("-J a[x]", f"Bad job name. {NOT}"),
        ("-J a[1-1001]", f"Job array index too large. {NOT}"),
        ("-q gone", f"gone: No such queue. {NOT}"),
        ("-w done(99)", f"99: No matching job found. {NOT}"),
        ("-w done(99", f"Dependency condition syntax error. {NOT}"),
        ("-w finished(99)", f"Dependency condition syntax error. {NOT}"),
        ("-wt 5", f"Options -wa and -wt must be given together. {NOT}"),
        ("-wa USR7 -wt 5", "USR7: Signal not supported"),
        ("-nnodes", f"Option -nnodes requires an argument. {NOT}"),
        ("-I", f"hpcbench's fake of LSF does not support -I, although LSF does. {NOT}"),
    ],
)
@pytest.mark.parametrize("where", ["line", "script"])
def test_refusals(options: str, text: str, where: str) -> None:
    lsf = FakeLSF()
    line = shlex.join(options.split()) if where == "script" else ""
    script = f"#!/bin/bash\n#BSUB {line}\ntrue\n" if line else "#!/bin/bash\ntrue\n"
    done = lsf.run("bsub", *(options.split() if not line else ()), stdin=script.encode())
    assert done.returncode == 255
    assert done.stdout == ""
    assert text in done.stderr
    assert lsf.jobs == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-nnodes 2", f"bsub: illegal option -- nnodes\n{NOT}"),
        ("-alloc_flags smt1", f"bsub: illegal option -- alloc_flags\n{NOT}"),
        ("-n x", f"Bad argument for option -n. {NOT}"),
        ("-n 161", f"Too many processors requested. {NOT}"),
        ("-n 4 -R span[ptile=2", f"Bad resource requirement syntax. {NOT}"),
        ("-n 4 -R spam[ptile=2]", f"Bad resource requirement syntax. {NOT}"),
    ],
)
def test_refusals_of_plain_lsf(options: str, text: str) -> None:
    done = FakeLSF(flavour="lsf").run("bsub", *options.split(), stdin=b"true\n")
    assert (done.returncode, done.stdout) == (255, "")
    assert text in done.stderr


def test_slots_become_hosts() -> None:
    lsf = FakeLSF(flavour="lsf")
    for options in ("-n 8 -R span[ptile=4]", "-n 8 -R span[hosts=1]", "-n 100"):
        assert lsf.run("bsub", *options.split(), stdin=b"true\n").returncode == 0
    assert [(job.hosts, job.per_host) for job in lsf.jobs] == [(2, 4), (1, 8), (3, 40)]


def test_other_refusals() -> None:
    assert "User permission denied" in _refused(FakeLSF(root_refused=os.geteuid() == 0, account_option="-P"), root=True)
    assert _refused(FakeLSF(account_option="-P")) == f"This site wants an account: option -P. {NOT}\n"
    assert _refused(FakeLSF(), stdin=b" \n") == f"Empty job. {NOT}\n"
    full = FakeLSF(max_submitted=1)
    assert full.run("bsub", stdin=b"true\n").returncode == 0
    assert _refused(full) == f"The destination queue has reached its job limit. {NOT}\n"


def _refused(lsf: Fake, stdin: bytes = b"true\n", root: bool = False) -> str:
    done = lsf.run("bsub", stdin=stdin)
    assert done.returncode == 255
    return "User permission denied" if root and os.geteuid() else done.stderr


def test_answers_and_priorities() -> None:
    lsf = FakeLSF()
    script = b"#!/bin/bash\n#BSUB -J name -q debug\n#BSUB -W 0:02\n#BSUB -nnodes 1\n#BSUB -nnodes 2\ntrue\n"
    assert lsf.run("bsub", stdin=script).stdout == "Job <1> is submitted to queue <debug>.\n"
    assert lsf.run("bsub", "-J", "other", "-W", "3", stdin=script).stdout == "Job <2> is submitted to queue <debug>.\n"
    assert lsf.run("bsub", stdin=b"true\n").stdout == "Job <3> is submitted to default queue <normal>.\n"
    first, second, _ = lsf.jobs
    assert (first.name, first.hosts, first.limit) == ("name", 2, 120.0)
    assert (second.name, second.hosts, second.limit) == ("other", 2, 180.0)


def test_two_lines_of_alloc_flags() -> None:
    lsf = FakeLSF()
    done = lsf.run("bsub", stdin=b'#BSUB -alloc_flags "smt1 gpumps"\n#BSUB -alloc_flags nvme\ntrue\n')
    assert done.returncode == 0
    assert "only the last -alloc_flags counts: nvme" in done.stderr


def test_a_file_is_parsed_only_if_the_site_does_it(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#BSUB -J from-file\ntrue\n", encoding="utf-8")
    lsf = FakeLSF()
    assert lsf.run("bsub", str(script)).returncode == 0
    parses = {**lsf.environment, "LSB_BSUB_PARSE_SCRIPT": "Y"}
    assert lsf.run("bsub", str(script), env=parses).returncode == 0
    assert [job.name for job in lsf.jobs] == ["", "from-file"]


def test_calls_are_recorded_byte_for_byte() -> None:
    lsf = FakeLSF()
    script = b"#!/bin/bash\n#BSUB -J a\ntrue \xff\xc3\xa9 \\\n"
    hostile = ["-J", "a b'\"$(touch pwned)`id`\n\\", "-o", b"\xff.out"]
    lsf.run("bsub", *hostile, stdin=script, env={**lsf.environment, "MARKED": "yes"})  # type: ignore[arg-type]
    (call,) = lsf.calls
    assert (call.program, call.stdin) == ("bsub", script)
    assert [os.fsencode(word) for word in call.argv] == [os.fsencode(word) for word in hostile]
    assert call.environment["MARKED"] == "yes"
    assert not Path("pwned").exists()


@pytest.mark.parametrize("program", ["bsub", "bjobs", "bhist", "bkill", "brequeue", "jsrun", "lrun"])
def test_it_identifies_itself_as_a_fake(program: str) -> None:
    lsf = FakeLSF()
    done = lsf.run(program, "-V")
    assert done.returncode == 0
    assert "hpcbench's fake of LSF" in done.stdout + done.stderr
    shim = Path(lsf.config.directory, "bin", program).read_text(encoding="utf-8")
    assert "it is not the program of a real scheduler" in shim


def test_faults_that_affect_a_submission() -> None:
    lsf = FakeLSF()
    lsf.order("mute", program="bsub", text="Batch system daemon not responding ... still trying", times=1)
    done = lsf.run("bsub", "-J", "once", stdin=b"true\n")
    assert (done.returncode, done.stdout) == (255, "")
    assert [job.name for job in lsf.jobs] == ["once"]  # the job was accepted nevertheless
    lsf.order("fail", program="bsub", text="LSF is down. Please wait ...", status=255, times=1)
    assert lsf.run("bsub", stdin=b"true\n").stderr == "LSF is down. Please wait ...\n"
    assert len(lsf.jobs) == 1
    lsf.order("banner", program="bsub", lines=["*** Welcome, job <77> ***"], times=1)
    assert lsf.run("bsub", stdin=b"true\n").stdout.splitlines()[0] == "*** Welcome, job <77> ***"
    assert lsf.run("bsub", stdin=b"true\n").stdout == "Job <3> is submitted to default queue <normal>.\n"
    lsf.order("empty", program="bsub", times=1)
    done = lsf.run("bsub", stdin=b"true\n")
    assert (done.returncode, done.stdout, len(lsf.jobs)) == (0, "", 4)


def test_a_slow_answer_comes_before_the_job_starts() -> None:
    lsf = FakeLSF()
    lsf.order("slow", program="bsub", seconds=30)
    with pytest.raises(subprocess.TimeoutExpired):
        lsf.run("bsub", stdin=b"true\n", timeout=1)
    assert lsf.jobs == []


def test_the_directory_may_be_named_by_the_environment() -> None:
    first, other = FakeLSF(), FakeLSF()
    elsewhere = {**first.environment, "HPCBENCH_FAKE_DIR": other.config.directory}
    assert first.run("bsub", stdin=b"true\n", env=elsewhere).returncode == 0
    assert (len(first.jobs), len(other.jobs)) == (0, 1)


def test_unknown_faults_and_flavours_are_refused(fake_of: Callable[..., Fake]) -> None:
    with pytest.raises(UserError, match="flavour 'sge' of LSF: known are csm, lsf, old, lsf-like"):
        FakeLSF(flavour="sge")
    with pytest.raises(UserError, match="fault 'banner': say program, lines"):
        FakeLSF().order("banner")
    with pytest.raises(UserError, match="fault 'rain': say one of banner"):
        FakeLSF().order("rain")
    with pytest.raises(UserError, match=r"fake of lsf: .*colour"):
        FakeLSF(colour="red")
