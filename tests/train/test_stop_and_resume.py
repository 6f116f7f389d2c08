"""Tests of hpcbench.train, started as in a job.

When stopped, hpcbench.train writes a checkpoint and exits with status 75.

After a restart, training continues.
"""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from mpi4py import MPI
from small_runs import TRAIN, place_run

from hpcbench.collect import run_log
from hpcbench.collect.submission import from_log
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.events import Event
from hpcbench.contract.layout import Layout
from hpcbench.contract.log_line import parse
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.run_state import resolve_log_state
from hpcbench.contract.training import Data
from hpcbench.report.measures import measure
from hpcbench.train import text
from hpcbench.train.stop import StopRequest
from hpcbench.train.trainer import Trainer

WORKER = Path(__file__).with_name("run_worker.py")
STEPS = 8
RUN = place_run(
    Layout(dp=2),
    data=Data(source="file", path="text", valid_fraction=0.5),
    train=TRAIN.changed(steps=STEPS, warmup_steps=2, global_batch=2, lr=1e-2, min_lr=1e-3),
)


# ---------------------------------------------------------------- the request


def test_the_stop_file_is_checked_at_most_once_per_second(tmp_path):
    now = [100.0]
    request = StopRequest(tmp_path / "stop", clock=lambda: now[0])
    assert not request()
    (tmp_path / "stop").touch()
    now[0] += 0.5
    assert not request(), "checked again after half a second"
    now[0] += 0.6
    assert request()
    (tmp_path / "stop").unlink()
    assert request(), "a request stays"


def test_the_answer_travels_with_the_sums_of_a_step(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(256)) * 1500)
    run = RUN.changed(layout=Layout(), ranks=1)
    corpus = text.load(Data(source="file", path=str(path), valid_fraction=0.5), run.train.seq_len)
    trainer = Trainer(run, MPI.COMM_SELF.Dup(), Progress(Wait.SPIN), corpus)
    asked = []

    def stop():
        asked.append(trainer.policy.exact.counters.calls)
        return len(asked) == 2

    calls = [trainer.policy.exact.counters.calls]
    answers = []
    for k in range(3):
        answers.append(trainer.step(k, stop).stop)
        calls.append(trainer.policy.exact.counters.calls)
    assert answers == [False, True, False]
    assert len({after - before for before, after in pairwise(calls)}) == 1
    trainer.step(3)
    assert trainer.policy.exact.counters.calls - calls[-1] == calls[1] - calls[0], "asking costs no message"


# ---------------------------------------------------------------- which steps count


@pytest.mark.parametrize(
    ("warmup", "steps", "resumed_from", "first"),
    [
        (0, 10, 0, 1),
        (3, 10, 0, 4),
        (3, 100, 50, 54),  # the number of skipped steps is constant
        (10, 100, 94, 98),  # half of the remaining six
        (10, 100, 99, 100),  # one step is better than none
        (0, 10, 5, 6),
    ],
)
def test_steps_after_a_resume_are_warm_up_again(warmup, steps, resumed_from, first):
    assert find_first_counted(warmup, steps, resumed_from) == first


# ---------------------------------------------------------------- the whole way


def logged(done):
    records = [parse(line, i) for i, line in enumerate(done.stdout.splitlines(), 1)]
    return {record.name: record.raw for record in records if isinstance(record, Event)}, records


def figures(done):
    """Return step lines without times."""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("step ", '{"event": "evaluation"'))]
    return [re.sub(r" \| (time|samples/s|model|hardware) [^|]+(?= \|)", "", line) for line in lines]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("a run's directory")
    (root / "text").write_bytes(b"".join(b"%d bottles of beer, " % i for i in range(30_000)))
    return root


def write_run(directory, name, **settings):
    where = directory / name
    where.mkdir()
    train = RUN.train.changed(**settings)
    run = RUN.changed(data=Data(source="file", path=str(directory / "text"), valid_fraction=0.5), train=train)
    (where / "run.json").write_text(json.dumps(run.content()))
    return where


@pytest.fixture(scope="module")
def runs(mpi_run, directory):
    """Run without interruption, and run with a stop after the first step and two resumes.

    The second resume uses an older checkpoint.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HPCBENCH_ATTEMPT", raising=False)
        uninterrupted = mpi_run(2, WORKER, str(write_run(directory, "whole") / "run.json"))
        where = write_run(directory, "stopped", checkpoint_every=3)
        (where / "stop").touch()
        stopped = mpi_run(2, WORKER, str(where / "run.json"))
        (where / "stop").unlink()
        shutil.copytree(where, directory / "other")
        patch.setenv("HPCBENCH_ATTEMPT", "2")
        resumed = mpi_run(2, WORKER, str(where / "run.json"))
        # as if the second attempt had died after step 6, with a damaged checkpoint of step 6
        spoilt = where / "checkpoint" / "step-000006" / "rank-00001.pt"
        spoilt.write_bytes(spoilt.read_bytes()[:-1])
        patch.setenv("HPCBENCH_ATTEMPT", "3")
        again = mpi_run(2, WORKER, str(where / "run.json"))
    return {"whole": uninterrupted, "stopped": stopped, "resumed": resumed, "again": again}


def test_a_stopped_run_leaves_a_checkpoint_and_status_75(runs, directory):
    done = runs["stopped"]
    assert (done.returncode, done.stderr) == (75, "")
    events, records = logged(done)
    assert events["start"]["attempt"] == 1 and events["start"]["resumed_from"] is None
    assert events["checkpoint"]["step"] == 1
    assert events["checkpoint"]["bytes"] == sum(
        path.stat().st_size for path in (directory / "other" / "checkpoint" / "step-000001").glob("*.pt")
    )
    assert (events["end"]["state"], events["end"]["steps"]) == ("stopped", 1)
    assert events["end"]["reason"] == "stopped on request, checkpoint at step 1"
    assert len(records) == len([record for record in records if record is not None])


def test_a_restarted_run_has_the_log_of_an_uninterrupted_one(runs):
    uninterrupted, resumed = runs["whole"], runs["resumed"]
    assert (uninterrupted.returncode, uninterrupted.stderr) == (resumed.returncode, resumed.stderr) == (0, "")
    assert figures(runs["stopped"]) == figures(uninterrupted)[:1]
    assert figures(resumed) == figures(uninterrupted)[1:]
    assert len(figures(uninterrupted)) == STEPS + 1
    events, _ = logged(resumed)
    assert (events["start"]["attempt"], events["start"]["resumed_from"]) == (2, 1)
    assert (events["end"]["state"], events["end"]["steps"]) == ("completed", STEPS)
    # one step preceded the stop; two of the remaining seven are warm-up
    assert (events["traffic"]["from_step"], events["traffic"]["to_step"]) == (4, STEPS)
    assert (logged(uninterrupted)[0]["traffic"]["from_step"]) == 3


def test_a_damaged_checkpoint_is_logged_and_the_run_continues_from_the_previous_one(runs):
    again = runs["again"]
    assert (again.returncode, again.stderr) == (0, "")
    events, _ = logged(again)
    assert (events["start"]["attempt"], events["start"]["resumed_from"]) == (3, 3)
    assert re.fullmatch(
        r"step-000006: rank-00001\.pt has \d+ bytes, but \d+ bytes were written", events["checkpoint_damaged"]["reason"]
    )
    assert figures(again) == figures(runs["whole"])[3:]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda run: run["train"].update(lr=0.5),
            r"another run: train\.lr is 0\.01 in the checkpoint, but 0\.5 in the run file",
        ),
        (
            lambda run: run["train"].update(seed=2),
            r"another run: train\.seed is 1 in the checkpoint, but 2 in the run file",
        ),
    ],
)
def test_a_checkpoint_of_another_run_ends_the_worker_with_one_line(mpi_run, runs, directory, spoil, message):
    path = directory / "other" / "run.json"
    before = path.read_text()
    changed = json.loads(before)
    spoil(changed)
    path.write_text(json.dumps(changed))
    done = mpi_run(2, WORKER, str(path))
    path.write_text(before)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("hpcbench.train: ")]
    assert lines and all(re.search(message, line) for line in lines)


def test_a_changed_text_is_refused(mpi_run, runs, directory):
    content = (directory / "text").read_bytes()
    (directory / "text").write_bytes(content[:-1])
    done = mpi_run(2, WORKER, str(directory / "other" / "run.json"))
    (directory / "text").write_bytes(content)
    assert done.returncode == 2
    assert "the run was trained on a different text than" in done.stderr


@pytest.mark.parametrize("attempt", ["", "0", "two", "-1"])
def test_an_attempt_that_is_not_a_number_is_refused(mpi_run, runs, directory, monkeypatch, attempt):
    monkeypatch.setenv("HPCBENCH_ATTEMPT", attempt)
    done = mpi_run(1, WORKER, str(directory / "other" / "run.json"))
    assert done.returncode == 2 and "HPCBENCH_ATTEMPT=" in done.stderr


def test_the_report_reads_a_resumed_run_and_notes_it(runs, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(runs["resumed"].stdout)
    log = run_log.read(path)
    assert log.resumed_from == 1 and log.missing_steps() == []
    result = from_log(path)
    measures = measure(result)
    assert result.state == "completed"
    assert measures.steps == 5
    assert measures.notes == ("r1-baseline: was resumed at step 1 (attempt 2): its speed uses steps 4 to 8",)
    gap = "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("step 5/8"))
    path.write_text(gap)
    assert run_log.read(path).missing_steps() == [5]


def test_a_stopped_run_is_neither_a_success_nor_a_failure(runs, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(runs["stopped"].stdout)
    verdict = resolve_log_state(run_log.read(path).ending)
    assert (verdict.state, verdict.reason) == ("stopped", "stopped on request, checkpoint at step 1")
