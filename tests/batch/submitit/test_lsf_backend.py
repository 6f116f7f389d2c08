"""Tests of the LSF back end, with programs that print recorded LSF output."""

import getpass
import re
from pathlib import Path

import pytest
from programs import Programs

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.lsf import Lsf
from hpcbench.batch.schedulers.scheduler import UnclearError, scheduler_class
from hpcbench.batch.sites.load_site import load_site
from hpcbench.contract.state import State
from hpcbench.errors import UserError

SITE, _ = load_site("lassen")
BY_FILE = SITE.model_copy(update={"scheduler": SITE.scheduler.model_copy(update={"hand_in": "file"})})
TAKEN = "Job <12345678> is submitted to queue <pbatch>.\n"
HEADER = "JOBID^JOBINDEX^STAT^EXIT_CODE^SUBMIT_TIME^START_TIME^FINISH_TIME^RUN_TIME^MAX_MEM^EXEC_HOST^JOB_NAME"
HEADER += "^EXIT_REASON^PEND_REASON\n"
ROW = "^-^-^-^-^-^-^n1^x^-^-\n"


def lsf(root: Path, by: str = "stdin") -> Lsf:
    back_end = scheduler_class("lsf")(root, SITE if by == "stdin" else BY_FILE)
    assert isinstance(back_end, Lsf)
    return back_end


def batch_job(root: Path, **changes: object) -> BatchJob:
    script = root / str(changes.pop("file", "job.sh"))
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/bin/bash\n#BSUB -q pbatch\n", encoding="utf-8")
    return BatchJob(**{"script": str(script), "name": "s-naive.j1", "jobs": ["j1"], **changes})  # type: ignore[arg-type]


def test_submit(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.setenv("LSF_ENVDIR", "/opt/lsf")
    programs.answer("bsub", "*** account xyz: Job <7> is submitted often\n" + TAKEN, "a warning\n")
    receipt = lsf(tmp_path).submit(batch_job(tmp_path))
    assert (receipt.id, list(receipt.elements)) == ("12345678", ["12345678"])
    [call] = programs.calls("bsub")
    assert call["stdin"] == "#!/bin/bash\n#BSUB -q pbatch\n"
    assert call["argv"] == ["-J", "s_naive.j1"]
    assert "LSB_JOBID" not in call["env"]
    assert call["env"]["LSF_ENVDIR"] == "/opt/lsf"


def test_arrays_and_chains(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bsub", "Job <9> is submitted to default queue <normal>.\n")
    some = batch_job(tmp_path, jobs=["a", "b"], array=True, after=["7", "8[2]"])
    assert lsf(tmp_path).submit(some).elements == ["9[1]", "9[2]"]
    lsf(tmp_path).submit(batch_job(tmp_path, after=["7"], after_any=True))
    first, second = (call["argv"] for call in programs.calls("bsub"))
    assert first == ["-J", "s_naive.j1[1-2]", "-w", "done(7) && done(8[2])", "-ti"]
    assert second[2:] == ["-w", "ended(7)"]


@pytest.mark.parametrize("by", ["stdin", "file"])
def test_no_word_of_the_line_holds_the_option_that_filters_look_for(
    programs: Programs, tmp_path: Path, by: str
) -> None:
    programs.answer("bsub", TAKEN)
    root = tmp_path / "a-nasty-place"
    lsf(root, by).submit(batch_job(root, file="jobs/j0001-r1/job.sh", name="study-naive", after=["7"]))
    [call] = programs.calls("bsub")
    assert not [word for word in call["argv"] if "-n" in word]
    text = call["stdin"] if by == "stdin" else Path(call["cwd"], call["argv"][-1]).read_text(encoding="utf-8")
    assert text == "#!/bin/bash\n#BSUB -q pbatch\n"
    if by == "file":  # the submission's directory, in which the job starts
        assert (call["cwd"], call["argv"][-1]) == (str(root), "./jobs/j0001-r1/job.sh")


@pytest.mark.parametrize("by", ["stdin", "file"])
def test_hostile_folders(
    programs: Programs, hostile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    monkeypatch.chdir(tmp_path)
    programs.answer("bsub", TAKEN)
    lsf(hostile, by).submit(batch_job(hostile))
    [call] = programs.calls("bsub")
    assert call["cwd"] == str(hostile)
    assert call["argv"][2:] == ([] if by == "stdin" else ["./job.sh"])
    assert call["stdin"] == ("#!/bin/bash\n#BSUB -q pbatch\n" if by == "stdin" else "")
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(("out", "status"), [("", 0), ("Job <7> looks fine\n", 0), ("Communication time out\n", 255)])
def test_unclear_answers(programs: Programs, tmp_path: Path, out: str, status: int) -> None:
    programs.answer("bsub", out, status=status)
    with pytest.raises(UnclearError, match="the scheduler may have accepted the job"):
        lsf(tmp_path).submit(batch_job(tmp_path))
    assert len(programs.calls("bsub")) == 1


def test_an_id_counts_whatever_the_status(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bsub", TAKEN, "mail could not be sent\n", status=255)
    assert lsf(tmp_path).submit(batch_job(tmp_path)).id == "12345678"


@pytest.mark.parametrize(
    ("err", "remedy"),
    [
        ("pbatch: No such queue. Job not submitted.\n", "queue:"),
        ("Project <x> is not known. Request aborted by esub. Job not submitted.\n", "account:"),
        ("RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.\n", "walltime:"),
        ("User permission denied. Job not submitted.\n", "site"),
        ("Something new. Job not submitted.\n", "Something new"),
    ],
)
def test_refusals(programs: Programs, tmp_path: Path, err: str, remedy: str) -> None:
    programs.answer("bsub", "", err, status=255)
    with pytest.raises(UserError, match=re.escape(f"bsub refused the job: {err.strip()}")) as caught:
        lsf(tmp_path).submit(batch_job(tmp_path))
    assert not isinstance(caught.value, UnclearError)
    assert remedy in str(caught.value)
    assert len(programs.calls("bsub")) == 1


@pytest.mark.parametrize(
    "err",
    [
        "ERROR: You are not a member of project group x. Check with 'bugroup x'\nJob not submitted.\n",
        "Sorry no available user group specified for this job. Job not submitted.\n",
    ],
)
def test_a_refused_account_is_answered_with_the_groups_of_the_user(
    programs: Programs, tmp_path: Path, err: str
) -> None:
    programs.answer("bsub", "", err, status=255)
    user = getpass.getuser()
    programs.answer("bugroup", f"GROUP_NAME    USERS\nchem   ann {user} bob\nphys  ann\nguests  (all)\n")
    with pytest.raises(UserError, match=r"set account: in the study .*; your groups are chem, guests \(bugroup -w\)$"):
        lsf(tmp_path).submit(batch_job(tmp_path))


def test_only_a_busy_lsf_is_asked_again(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bsub", "", "mbatchd is down. Please try later. Job not submitted.\n", 255, times=2)
    programs.answer("bsub", TAKEN)
    assert lsf(tmp_path).submit(batch_job(tmp_path)).id == "12345678"
    assert len(programs.calls("bsub")) == 3


def test_one_unknown_id_does_not_blind_the_poll(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", "A banner\n" + HEADER + "1^0^RUN" + ROW + "2^3^SSUSP" + ROW, "Job <9> is not found\n", 255)
    programs.answer("bhist", "", "No matching job found\n", 255)
    statuses = lsf(tmp_path).poll(["1", "2[3]", "9"])
    assert {job: word.state for job, word in statuses.items()} == {"1": State.RUNNING, "2[3]": State.SUSPENDED}
    [jobs], [history] = programs.calls("bjobs"), programs.calls("bhist")
    assert jobs["argv"][0] == "-a"
    assert jobs["argv"][-3:] == ["1", "2", "9"]
    assert history["argv"] == ["-l", "-n", "0", "9"]
    assert jobs["env"]["TZ"] == "UTC"


def test_what_has_left_bjobs(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", "", "Job <1> is not found\nJob <2> is not found\n", 255)
    done = "Fri Nov 21 06:30:00: Submitted from host <a>;\nFri Nov 21 06:30:05: Done successfully. The CPU;\n"
    programs.answer("bhist", f"Job <1>, User <u>\n{done}", "", 0)
    statuses = lsf(tmp_path).poll(["1", "2"])
    assert list(statuses) == ["1"]
    assert statuses["1"].state is State.COMPLETED
    assert len(programs.calls("bhist")) == 1


def test_bhist_is_not_asked_without_need(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", HEADER + "1^0^EXIT" + ROW)
    assert lsf(tmp_path).poll(["1"])["1"].state is State.FAILED
    assert not programs.calls("bhist")
    assert lsf(tmp_path).poll([]) == {}


def test_no_bhist(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.answer("bjobs", "", "Job <1> is not found\n", 255)
    monkeypatch.setenv("PATH", str(programs.directory))
    back_end = lsf(tmp_path)
    assert back_end.poll(["1"]) == {}
    assert back_end.poll(["1"]) == {}


TABLE = """\
JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
1       me      RUN   q          a           n1          x          Nov 21 06:30
"""


def test_an_unknown_field_is_dropped(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", "", "exit_reason: unknown field name\n", 99, when=("-o", "exit_reason"))
    programs.answer("bjobs", HEADER.replace("^EXIT_REASON", "") + "1^0^EXIT^1^-^-^-^-^-^n1^x^-\n", when=("-o",))
    killed = "Fri Nov 21 06:30:00: Submitted from host <a>;\nFri Nov 21 06:30:05: Completed <exit>; TERM_MEMLIMIT: x;\n"
    programs.answer("bhist", f"Job <1>, User <u>\n{killed}")
    back_end = lsf(tmp_path)
    for _ in range(2):
        word = back_end.poll(["1"])["1"]
        assert (word.state, word.reason, word.hosts) == (State.OUT_OF_MEMORY, "TERM_MEMLIMIT", "n1")
    assert len(programs.calls("bjobs")) == 3


@pytest.mark.parametrize("refused", ["-w", "nothing"])
def test_an_lsf_without_fields(programs: Programs, tmp_path: Path, refused: str) -> None:
    programs.answer("bjobs", "", "bjobs: illegal option -- o\nUsage: bjobs [-a]\n", 255, when=("-o",))
    programs.answer("bjobs", "", "bjobs: illegal option -- w\n", 255, when=("-a", refused))
    programs.answer("bjobs", TABLE)
    back_end = lsf(tmp_path)
    for _ in range(2):
        assert back_end.poll(["1"])["1"] == JobStatus(State.RUNNING, hosts="n1")
    options = [call["argv"][1:-1] for call in programs.calls("bjobs")]
    assert options[-1] == ([] if refused == "-w" else ["-w"])
    assert sum("-o" in some for some in options) == 2


@pytest.mark.parametrize("err", ["LSF is down. Please wait ...\n", "Failed in an LSF library call: LIM is down\n"])
@pytest.mark.parametrize("call", ["poll", "find", "cancel"])
def test_an_lsf_that_is_away(programs: Programs, tmp_path: Path, err: str, call: str) -> None:
    programs.answer("bjobs", "", err, 255, times=1)
    programs.answer("bjobs", HEADER + "1^0^RUN" + ROW)
    back_end = lsf(tmp_path)
    with pytest.raises(UserError, match=re.escape(err.strip())):
        back_end.find("x", 1) if call == "find" else getattr(back_end, call)(["1"])
    assert back_end.poll(["1"])["1"].state is State.RUNNING
    assert all("-o" in some["argv"] for some in programs.calls("bjobs"))


def test_find(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", HEADER + "4^1^RUN" + ROW + "4^2^PEND" + ROW, when=("-J", "an_array"))
    programs.answer("bjobs", HEADER + "7^0^RUN" + ROW, when=("-J", "solo"))
    programs.answer("bjobs", HEADER + "6^0^EXIT" + ROW + "7^0^PEND" + ROW + "8^0^RUN" + ROW, when=("-J", "twice"))
    programs.answer("bjobs", "", "Job <none> is not found\n", 255)
    back_end = lsf(tmp_path)
    array, solo = back_end.find("an-array", 2), back_end.find("solo", 1)
    assert array is not None
    assert solo is not None
    assert (array.id, list(array.elements)) == ("4", ["4[1]", "4[2]"])
    assert (solo.id, list(solo.elements)) == ("7", ["7"])
    assert back_end.find("none", 1) is None
    twice = back_end.find("twice", 1)
    assert twice is not None and twice.id == "8"
    assert back_end.copies(["twice"]) == ["7", "8"]


def test_cancel(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.lsf.TERMINATE_WAIT", 0.0)
    rows = {"1": "1^0^RUN", "2": "2^3^PEND", "3": "3^0^DONE", "5": "5^0^ZOMBI", "6": "6^0^RUN"}
    programs.answer("bjobs", HEADER + "".join(row + ROW for row in rows.values()), times=1)
    programs.answer("bjobs", HEADER + rows["5"] + ROW + "1^0^EXIT" + ROW + "2^3^EXIT" + ROW, times=1)
    programs.answer("bjobs", HEADER + "5^0^EXIT" + ROW)
    programs.answer("bkill", "Job <5> is being terminated\n", when=("-r",))
    answer = "Job <2[3]>: Job has already finished\nJob <6>: Operation not permitted\n"
    programs.answer("bkill", "Job <1> is being terminated\n", answer, 255)
    assert lsf(tmp_path).cancel(["1", "2[3]", "3", "4", "5", "6"]) == {
        "1": "ended",
        "2[3]": "ended",
        "3": "already over",
        "4": "already over",
        "5": "ended",
        "6": "Operation not permitted",
    }
    assert [call["argv"] for call in programs.calls("bkill")] == [["1", "2[3]", "5", "6"], ["-r", "5"]]


def test_check(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs.directory))
    with pytest.raises(UserError, match="lassen: bsub, bjobs, bkill: not on PATH"):
        Lsf.check(SITE)
