"""Tests with a disk that is full, over quota, read-only or missing.

The end of a run is still recorded, and messages name the disk.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over
from test_scripts import Bench
from tools import explain_missing

from hpcbench.batch.reserve import FILE, set_aside, written
from hpcbench.batch.submit import Options, submit
from hpcbench.batch.tracking.track import track
from hpcbench.contract.job_state import SchedulerAnswer, SubmissionRecord, resolve_job_state
from hpcbench.contract.mark import read_mark
from hpcbench.contract.state import State
from hpcbench.report.main import report


def mounted(path: Path, size: str) -> bool:
    path.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    return os.geteuid() == 0 and subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small(tmp_path: Path, need: Callable[[str | None], None]) -> Iterator[Path]:
    """A file system of 4 MB."""
    path = tmp_path / "small"
    need(explain_missing("mount"))
    denied = "a full disk needs root and the right to mount: run as root, or in a container with --privileged"
    need(None if mounted(path, "4m") else denied)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False)


def fill(small: Path) -> Path:
    """Write a file until the file system is full, and return its path."""
    path = small / "filler"
    with path.open("ab", buffering=0) as out:
        try:
            while out.write(bytes(4096)):
                pass
        except OSError:
            return path
    raise AssertionError("the disk has no end")


FULL = "No space left on device"


def test_full_in_the_middle_of_a_run(small: Path) -> None:
    bench = Bench(small / "b", "slurm", runs="ab")
    bench.act("a", f"head -c 9m /dev/zero > {small}/filler; exit 1")
    assert bench.go(SLURM_JOB_ID="7").returncode == 1
    why = f"{small}: {FULL}"
    assert (bench.job_mark["exit"], bench.job_mark["why"]) == (1, why)
    marks = {run: read_mark(bench.root / "runs" / run) for run in "ab"}
    assert {run: (mark.exit, mark.why) for run, mark in marks.items() if mark} == {"a": (1, why), "b": (74, why)}
    assert bench.lines("calls") == ["a 1"]  # b would have been lost
    (small / "filler").unlink()
    (bench.here / "act.a").unlink()
    assert bench.go(SLURM_JOB_ID="7").returncode == 0
    assert "why" not in bench.job_mark and bench.exits() == {"a": 0, "b": 0}
    assert not list(bench.root.rglob(FILE)) and not list(bench.root.rglob("*.tmp"))


def test_full_before_the_first_mark(small: Path) -> None:
    bench = Bench(small / "b", "slurm", runs="a")
    set_aside(bench.root / "jobs" / "j1")  # like submit
    filler = fill(small)
    done = bench.go(SLURM_JOB_ID="7")
    assert (done.returncode, bench.lines("calls")) == (74, [])
    assert (bench.job_mark["exit"], bench.job_mark["why"]) == (74, f"{small}: {FULL}")
    handed = SubmissionRecord("2026-01-01T00:00:00Z")
    state = resolve_job_state(
        read_mark(bench.root / "jobs" / "j1"), handed, None, requeue=False, silent=None, clock=0.0
    )
    assert (state.state, state.reason) == (State.FAILED, f"{small}: {FULL}")
    filler.unlink()
    assert bench.go(SLURM_JOB_ID="7").returncode == 0


@pytest.mark.parametrize(("harm", "message"), [("full", FULL), ("read-only", "Read-only file system")])
def test_a_script_that_cannot_write_prints_the_reason(small: Path, tmp_path: Path, harm: str, message: str) -> None:
    bench = Bench(small / "b", "slurm", runs="a")
    (bench.root / "jobs" / "j1" / FILE).unlink(missing_ok=True)
    if harm == "full":
        fill(small)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    done = bench.go(SLURM_JOB_ID="7")
    assert done.returncode == 74 and f"{small}: {message}" in done.stderr


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a")
    script = tmp_path / "spooled"  # schedulers run a copy of the script
    script.write_text(bench.script.read_text(encoding="utf-8"), encoding="utf-8")
    bench.script = script
    bench.act("a", f"rm -rf {bench.root}")
    done = bench.go(SLURM_JOB_ID="7")
    assert done.returncode != 0 and "No such file or directory" in done.stderr
    again = bench.go(SLURM_JOB_ID="7")
    assert again.returncode == 74
    answer = SchedulerAnswer(State.FAILED, exit=74)
    state = resolve_job_state(
        None, SubmissionRecord("2026-01-01T00:00:00Z"), answer, requeue=False, silent=None, clock=0.0
    )
    assert state.reason == "exit 74 (nothing could be written: the disk is full, over its quota, read-only or gone)"


def test_both_commands_name_the_disk(fake: Fake, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.acts({"baseline": "fill"})
    fake.write_study(matrix={"scheme": ["baseline", "naive-zfp8"]})
    root = submit(fake.study, Options(site=str(fake.site), out=small / "results")).root
    tracked = wait_until_over(root)
    why = f"{small}: {FULL}"
    assert [status.state for status in tracked.runs.values()] == [State.FAILED] * 2
    assert all(why in status.reason for status in tracked.runs.values())
    assert tracked.jobs["j0001-r1"].reason == why
    capsys.readouterr()
    assert report([root]) == 1
    assert " ".join(capsys.readouterr().out.split()).count(f"r1-baseline, r1-naive-zfp8: failed: {why}") == 1


def test_a_run_whose_last_event_is_whole_is_completed_for_both_commands(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.write_study(matrix={"scheme": ["baseline"]})
    root = submit(fake.study, Options(site=str(fake.site))).root
    wait_until_over(root)
    for path in (root / "jobs" / "j0001-r1" / "status.json", root / "runs" / "r1-baseline" / "status.json"):
        mark = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**mark, "state": "running", "exit": None, "end": None}), encoding="utf-8")
    wait_for(lambda: track(root).over)  # the scheduler may list the job a little longer
    tracked = track(root)
    assert [status.state for status in tracked.runs.values()] == [State.COMPLETED]
    assert tracked.jobs["j0001-r1"].state is State.COMPLETED
    assert not tracked.failed
    assert report([root]) == 0
    assert "lost" not in capsys.readouterr().out


def test_the_ledger_is_written_to_the_reserved_space(small: Path) -> None:
    place = small / "handed"
    place.mkdir()
    set_aside(place)
    fill(small)
    path = place / "0001.json"
    with pytest.raises(OSError, match=FULL):
        path.write_bytes(b"x" * 100)
    path.unlink(missing_ok=True)
    written(place, lambda: path.write_bytes(b"x" * 100) and None)
    assert path.read_bytes() == b"x" * 100
    with pytest.raises(OSError, match=FULL):
        written(place, lambda: (place / "2").write_bytes(b"x" * 100000) and None)


def test_a_signal_on_a_full_disk_is_obeyed(small: Path) -> None:
    bench = Bench(small / "b", "slurm", runs="a")
    bench.act("a", f"head -c 9m /dev/zero > {small}/filler; sleep 300")
    process = bench.start(SLURM_JOB_ID="7")
    wait_for(lambda: (small / "filler").exists() and not os.statvfs(small).f_bavail)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert (bench.job_mark["state"], bench.job_mark["exit"]) == ("ended", 143)
