"""Tests of further attempts, made by a job that may be requeued, or by `retry` if the cause can be fixed.

Every attempt is reported.
"""

import os
import signal
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.cancel import cancel
from hpcbench.batch.retry import retry
from hpcbench.batch.schedulers.local import Local
from hpcbench.batch.schedulers.processes import alive
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.state import State
from hpcbench.errors import UserError
from hpcbench.files import read_json

SCHEMES = ("baseline", "naive-zfp8", "mzhybrid")


def start(fake: Fake, **options: object) -> SubmitResult:
    return submit(fake.study, Options(site=str(fake.site), **options))  # type: ignore[arg-type]


def states(tracked: Tracked) -> list[State]:
    return [tracked.runs[f"r1-{scheme}"].state for scheme in SCHEMES]


def launches(fake: Fake) -> list[str]:
    return [call["run"] for call in fake.calls if "run" in call]


def test_a_job_near_its_limit_is_requeued_and_its_run_continues(fake: Fake) -> None:
    fake.acts({"naive-zfp8": "stop"})
    fake.write_study(walltime="40s", stop_ahead="20s", run_limit="40s", requeue=1)
    root = start(fake).root
    tracked = wait_until_over(root)
    assert states(tracked) == [State.COMPLETED] * 3
    assert launches(fake) == ["r1-baseline", "r1-naive-zfp8", "r1-naive-zfp8", "r1-mzhybrid"]
    assert (tracked.jobs["j0001-r1"].state, tracked.jobs["j0001-r1"].attempt) == (State.COMPLETED, 2)
    first = read_json(root / "jobs" / "j0001-r1" / "attempts" / "1.json")
    assert first is not None and (first["state"], first["exit"]) == ("requeued", 75)
    attempts = [tracked.runs[f"r1-{scheme}"].attempt for scheme in SCHEMES]
    assert attempts == [1, 2, 2]
    assert '"stopped"' in (root / "runs" / "r1-naive-zfp8" / "log.1.txt").read_text(encoding="utf-8")
    assert '"completed"' in (root / "runs" / "r1-naive-zfp8" / "log.txt").read_text(encoding="utf-8")


def test_a_run_at_its_part_of_the_walltime_resumes_from_its_checkpoint(fake: Fake) -> None:
    fake.acts({"baseline": "stop"})
    fake.write_study(walltime="100s", stop_ahead="85s", requeue=1)
    root = start(fake).root
    tracked = wait_until_over(root)
    assert states(tracked) == [State.COMPLETED] * 3
    assert launches(fake) == ["r1-baseline", "r1-naive-zfp8", "r1-mzhybrid", "r1-baseline"]
    first = read_json(root / "runs" / "r1-baseline" / "status.1.json")
    assert first is not None and (first["exit"], first["limit"]) == (75, "walltime")
    assert '"stopped"' in (root / "runs" / "r1-baseline" / "log.1.txt").read_text(encoding="utf-8")


def test_retry_continues_a_job_that_may_not_be_requeued_from_its_checkpoint(fake: Fake) -> None:
    fake.acts({"naive-zfp8": "stop"})
    fake.write_study(walltime="40s", stop_ahead="20s", run_limit="40s")
    root = start(fake).root
    tracked = wait_until_over(root)
    assert states(tracked) == [State.COMPLETED, State.STOPPED, State.STOPPED]
    assert tracked.failed and "hpcbench retry" in tracked.jobs["j0001-r1"].reason
    again = retry(root)
    assert again.jobs == ["j0001-r1"] and set(again.runs) <= {"r1-naive-zfp8", "r1-mzhybrid"}
    assert "r1-naive-zfp8" in again.runs
    tracked = wait_until_over(root)
    assert states(tracked) == [State.COMPLETED] * 3
    assert launches(fake).count("r1-baseline") == 1
    assert not tracked.failed
    assert retry(root).jobs == []


def test_a_job_that_ignores_its_signal_is_ended_at_its_limit(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    fake.write_study(walltime="22s", stop_ahead="2s", run_limit="22s")
    root = start(fake).root
    wait_for(lambda: fake.children)
    tracked = wait_until_over(root)
    assert tracked.jobs["j0001-r1"].state is State.TIMED_OUT
    assert tracked.runs["r1-baseline"].state is State.TIMED_OUT
    for pid in fake.children:
        wait_for(lambda pid=pid: not alive({"pid": pid}))
    left = retry(root)
    assert left.jobs == [] or "r1-baseline" not in left.runs
    assert "timed out without a checkpoint" in left.left["r1-baseline"]


@pytest.mark.parametrize(
    ("act", "reason"), [("fail", "failed (exit status 3: boom"), ("mute", "unknown (exit status 0, but its log")]
)
def test_runs_that_failed_by_themselves_are_retried_only_with_all(fake: Fake, act: str, reason: str) -> None:
    fake.acts({"naive-zfp8": act})
    root = start(fake).root
    wait_until_over(root)
    left = retry(root)
    assert left.jobs == [] and reason in left.left["r1-naive-zfp8"] and "--all" in left.left["r1-naive-zfp8"]
    fake.acts({})
    again = retry(root, all=True)
    assert again.runs == ["r1-naive-zfp8"]
    assert track(root).runs["r1-naive-zfp8"].state in (State.PENDING, State.RUNNING, State.COMPLETED)
    assert states(wait_until_over(root)) == [State.COMPLETED] * 3
    assert launches(fake).count("r1-baseline") == 1


def test_retry_whole_gives_pairs_one_allocation(fake: Fake) -> None:
    fake.acts({"naive-zfp8": "fail"})
    root = start(fake).root
    wait_until_over(root)
    fake.acts({})
    assert sorted(retry(root, all=True, whole_jobs=True).runs) == sorted(f"r1-{scheme}" for scheme in SCHEMES)
    tracked = wait_until_over(root)
    assert states(tracked) == [State.COMPLETED] * 3
    assert {status.attempt for status in tracked.runs.values()} == {2}
    assert [launches(fake).count(f"r1-{scheme}") for scheme in SCHEMES] == [2, 2, 2]
    assert (root / "runs" / "r1-baseline" / "log.1.txt").is_file()


def test_a_lost_run_is_retried(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    root = start(fake, only="scheme=baseline").root
    wait_for(lambda: track(root).runs["r1-baseline"].state is State.RUNNING)
    pids = fake.children
    queue, job = (read_json(root / path) for path in ("queues/1.json", "jobs/j0001-r1/process.json"))
    assert queue is not None and job is not None
    os.kill(queue["process"]["pid"], signal.SIGKILL)
    os.killpg(job["pid"], signal.SIGKILL)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: track(root).runs["r1-baseline"].state is State.LOST)
    fake.acts({})
    assert retry(root).runs == ["r1-baseline"]
    assert wait_until_over(root).runs["r1-baseline"].state is State.COMPLETED


def test_a_live_run_is_not_retried(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    root = start(fake).root
    wait_for(lambda: fake.children)
    retried = retry(root, all=True)
    assert retried.jobs == [] and set(retried.left.values()) == {"its job is running"}
    cancel(root)
    tracked = wait_until_over(root)
    assert states(tracked) == [State.CANCELLED] * 3
    left = retry(root).left["r1-baseline"]
    assert left.startswith("cancelled (") and left.endswith(": use --all to retry it")


def test_a_dry_run_cannot_be_retried(fake: Fake) -> None:
    with pytest.raises(UserError, match="a dry run"):
        root: Path = start(fake, dry_run=True).root
        retry(root)


def test_a_refused_retry_keeps_the_results_of_all_runs(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.acts({"mzhybrid": "fail"})
    root = start(fake).root
    before = wait_until_over(root)
    assert states(before) == [State.COMPLETED, State.COMPLETED, State.FAILED]
    wait_for(lambda: not alive((read_json(root / "queues" / "1.json") or {})["process"]))

    def refuse(self: Local, job: BatchJob) -> Receipt:
        raise UserError("sbatch refused the job: QOSMaxSubmitJobPerUserLimit")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "submit", refuse)
        with pytest.raises(UserError, match="refused"):
            retry(root, all=True, whole_jobs=True)
    assert track(root).runs == before.runs
    fake.acts({})
    retry(root, all=True, whole_jobs=True)
    assert states(wait_until_over(root)) == [State.COMPLETED] * 3
    assert (root / "runs" / "r1-baseline" / "log.1.txt").exists()


def failed(fake: Fake) -> Path:
    """A submission whose job has failed. The job's script contains the launch command."""
    fake.acts({"naive-zfp8": "fail"})
    fake.write_study(walltime="40s", stop_ahead="20s")
    root = start(fake).root
    wait_until_over(root)
    assert "'--extra arg')" in (root / "jobs" / "j0001-r1" / "job.sh").read_text(encoding="utf-8")
    return root


def write_args(fake: Fake, args: list[str], **changes: object) -> None:
    fake.write_site(launcher={"kind": "mpich", "program": str(fake.launcher), "args": args}, **changes)


def test_retry_lists_changes_of_the_site_file_and_applies_them_on_request(fake: Fake) -> None:
    root = failed(fake)
    assert retry(root).changes == ""
    write_args(fake, ["--mpi=pmi2"])
    again = retry(root, all=True)
    assert again.runs == ["r1-naive-zfp8"]
    assert (
        'launcher.args: ["--extra arg"] -> ["--mpi=pmi2"]): the scripts do not use these changes: rewrite the '
        "scripts with `hpcbench retry --update`" in again.changes
    )
    wait_until_over(root)
    assert "--extra arg" in [call for call in fake.calls if "run" in call][-1]["argv"]
    fake.acts({})
    assert retry(root, all=True, update=True).changes.endswith(": the scripts now use these changes")
    assert states(wait_until_over(root)) == [State.COMPLETED] * 3
    argv = [call for call in fake.calls if "run" in call][-1]["argv"]
    assert "--mpi=pmi2" in argv and "--extra arg" not in argv
    assert "--extra arg" in (root / "jobs" / "j0001-r1" / "job.1.sh").read_text(encoding="utf-8")
    assert retry(root).changes == ""


def test_retry_gives_a_job_more_time(fake: Fake) -> None:
    root = failed(fake)
    fake.acts({})
    retry(root, all=True, sets=["walltime=90s"])
    text = (root / "jobs" / "j0001-r1" / "job.sh").read_text(encoding="utf-8")
    assert "--walltime 90 --stop-ahead 20 " in text and "'--extra arg')" in text
    assert states(wait_until_over(root)) == [State.COMPLETED] * 3
    [job] = track(root).submission.jobs
    assert (job.walltime, job.stop_ahead) == (90, 20)


def test_settings_that_would_change_the_runs_are_refused(fake: Fake) -> None:
    root = failed(fake)
    before = (root / "jobs" / "j0001-r1" / "job.sh").read_bytes()
    with pytest.raises(UserError, match=r"--set 'train.steps=5': retry repeats the same runs"):
        retry(root, sets=["train.steps=5"])
    write_args(fake, [], threads=2)
    with pytest.raises(UserError, match=r"site\.yaml: threads changed, which changes the runs: submit .* --again"):
        retry(root, all=True, update=True)
    assert (root / "jobs" / "j0001-r1" / "job.sh").read_bytes() == before
