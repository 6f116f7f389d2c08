"""Tests that no job is lost or submitted twice, whatever the scheduler answers and whenever the command is killed."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.after import After
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt, UnclearError
from hpcbench.batch.submit_jobs import settle, submit_jobs
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.errors import UserError


class Queue(JobScheduler):
    """A scheduler whose reaction to each job is set by the test: take, refuse, lose, swallow, or kill the command."""

    kind = "local"
    slowest = 0.0

    def __init__(self, acts: Sequence[str] = ()) -> None:
        super().__init__(Path("/"), None)  # type: ignore[arg-type]
        self.acts = list(acts)
        self.queue: dict[str, BatchJob] = {}
        self.begun = 0

    def submit(self, job: BatchJob) -> Receipt:
        act = self.acts.pop(0) if self.acts else "take"
        if act == "refuse":
            raise UserError("bsub: No such queue. Job not submitted.")
        if act == "lose":
            raise UnclearError("sbatch: Socket timed out")
        if act == "die before":
            raise KeyboardInterrupt
        assert job.name not in self.queue, "submitted twice"
        self.queue[job.name] = job
        if act == "swallow":
            raise UnclearError("sbatch: Socket timed out")
        if act == "die after":
            raise KeyboardInterrupt
        return self._receipt(job)

    def _receipt(self, job: BatchJob) -> Receipt:
        id = str(1000 + list(self.queue).index(job.name))
        elements = [f"{id}_{k + 1}" for k in range(len(job.jobs))] if job.array else [id]
        return Receipt(id, elements, ["sbatch", str(job.script)], f"Submitted batch job {id}")

    def begin(self) -> str:
        self.begun += 1
        return "begun"

    def find(self, name: str, jobs: int) -> Receipt | None:
        return self._receipt(self.queue[name]) if name in self.queue else None

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        return {}

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        return {}


JOBS = [
    BatchJob("j1", "jobs/j1/job.sh", ["j1"]),
    BatchJob("a01", "arrays/a01.sh", ["j2", "j3"], array=True),
    BatchJob("j4", "jobs/j4/job.sh", ["j4"]),
]


def hand(root: Path, queue: Queue, jobs: Sequence[BatchJob] = JOBS, **more: Any) -> str:
    return submit_jobs(queue, Ledger(root), jobs, name="study-abc123", sleep=lambda _: None, **more)


def left(root: Path) -> list[BatchJob]:
    ledger = Ledger(root)
    return [job for job in JOBS if ledger.of(job.jobs[0]) is None]


def test_each_submission_is_recorded_with_its_answer(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    after = After(tmp_path, ["55"], any_end=False)
    assert hand(tmp_path, Queue(), after=after, progress=lambda *counts: progress.append(counts)) == "begun"
    ledger = Ledger(tmp_path)
    assert [(p.name, p.id, p.elements) for p in ledger.submitted] == [
        ("study-abc123-j1", "1000", ["1000"]),
        ("study-abc123-a01", "1001", ["1001_1", "1001_2"]),
        ("study-abc123-j4", "1002", ["1002"]),
    ]
    assert [ledger.element(job) for job in ("j1", "j2", "j3", "j4", "j5")] == ["1000", "1001_1", "1001_2", "1002", None]
    assert ledger.submitted[0].argv == ["sbatch", "jobs/j1/job.sh"]
    assert ledger.submitted[0].output == "Submitted batch job 1000" and ledger.submitted[0].after == ["55"]
    assert progress == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("act", ["refuse", "lose", "swallow", "die before", "die after"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_after_any_fault_the_same_command_submits_the_other_jobs_once(tmp_path: Path, act: str, place: int) -> None:
    queue = Queue(["take"] * place + [act])
    with contextlib.suppress(UserError, KeyboardInterrupt):
        hand(tmp_path, queue)
    settle(queue, Ledger(tmp_path))
    hand(tmp_path, queue, left(tmp_path))
    assert sorted(id for job in queue.queue.values() for id in job.jobs) == ["j1", "j2", "j3", "j4"]
    ledger = Ledger(tmp_path)
    for name, job in queue.queue.items():
        receipt = queue.find(name, len(job.jobs))
        assert receipt is not None
        assert [ledger.element(id) for id in job.jobs] == list(receipt.elements)


def test_a_refusal_reports_the_number_of_submitted_jobs_which_start(tmp_path: Path) -> None:
    queue = Queue(["take", "refuse"])
    with pytest.raises(UserError, match=r"No such queue.*\(1 of 3 are submitted; run the same command to continue\)"):
        hand(tmp_path, queue)
    assert queue.begun == 1
    assert [job.id for job in Ledger(tmp_path).submitted] == ["1000"]


def test_a_job_with_an_unclear_answer_is_looked_up(tmp_path: Path) -> None:
    queue = Queue(["swallow"])
    hand(tmp_path, queue)
    assert Ledger(tmp_path).element("j1") == "1000"


def test_a_job_that_is_not_listed_stays_recorded_until_it_is_resolved(tmp_path: Path) -> None:
    queue = Queue(["lose"])
    with pytest.raises(UserError, match="the queue has no study-abc123-j1 so far"):
        hand(tmp_path, queue)
    assert [job.id for job in Ledger(tmp_path).submitted] == [None]
    assert settle(queue, Ledger(tmp_path)) == 0
    assert Ledger(tmp_path).submitted == []


def test_a_second_submission_has_another_name_and_the_number_of_earlier_attempts(tmp_path: Path) -> None:
    queue = Queue()
    hand(tmp_path, queue)
    (tmp_path / "jobs" / "j2").mkdir(parents=True)
    (tmp_path / "jobs" / "j2" / "status.json").write_text('{"state": "ended", "attempt": 3, "exit": 1}')
    hand(tmp_path, queue, [BatchJob("j2", "jobs/j2/job.sh", ["j2"])])
    hand(tmp_path, queue, [BatchJob("j2", "jobs/j2/job.sh", ["j2"])])
    ledger = Ledger(tmp_path)
    assert [job.name for job in ledger.submitted][3:] == ["study-abc123-j2.2", "study-abc123-j2.3"]
    last = ledger.of("j2")
    assert last is not None and last.begun == {"j2": 3} and ledger.element("j2") == "1004"
    assert ledger.element("j3") == "1001_2"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    hand(tmp_path, Queue())
    (tmp_path / "handed" / "0002.json").write_text('{"number": 2}')
    with pytest.raises(UserError, match=r"0002\.json: damaged"):
        Ledger(tmp_path)


def test_a_job_in_transit_when_its_sender_died_is_waited_for(tmp_path: Path) -> None:
    queue = Queue(["die before"])
    queue.slowest = 30.0
    with contextlib.suppress(KeyboardInterrupt):
        hand(tmp_path, queue)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) > 5:  # the job appears in the queue
            handed = Ledger(tmp_path).submitted[0]
            queue.queue[handed.name] = handed

    assert settle(queue, Ledger(tmp_path), sleep=sleep) == 1
    assert Ledger(tmp_path).element("j1") == "1000"


def test_that_wait_is_limited(tmp_path: Path) -> None:
    queue = Queue(["die before"])
    queue.slowest = 30.0
    with contextlib.suppress(KeyboardInterrupt):
        hand(tmp_path, queue)
    waited: list[float] = []
    assert settle(queue, Ledger(tmp_path), sleep=waited.append) == 0
    assert 28 <= sum(waited) <= 32 and Ledger(tmp_path).submitted == []


@pytest.mark.parametrize(
    ("order", "id", "elements"),
    [(0, "77", ["77"]), (1, "77_2", ["77_1", "77_2"]), (1, "77[2]", ["77[1]", "77[2]"])],
)
def test_a_status_file_overrides_a_queue_that_has_forgotten_the_job(
    tmp_path: Path, order: int, id: str, elements: list[str]
) -> None:
    queue = Queue(["die before"])
    queue.kind = "lsf" if "[" in id else "slurm"
    with contextlib.suppress(KeyboardInterrupt):
        hand(tmp_path, queue, [JOBS[order]])
    job = tmp_path / "jobs" / JOBS[order].jobs[-1]
    job.mkdir(parents=True)
    (job / "status.json").write_text(f'{{"state": "ended", "exit": 0, "attempt": 1, "id": "{id}"}}')
    assert settle(queue, Ledger(tmp_path)) == 1
    ledger = Ledger(tmp_path)
    assert [ledger.element(name) for name in JOBS[order].jobs] == elements and ledger.submitted[0].id == "77"


def test_a_long_list_of_what_to_wait_for_is_split(tmp_path: Path) -> None:
    queue = Queue()
    queue.most_after = 2
    (tmp_path / "after").mkdir()
    (tmp_path / "after" / "relay.sh").write_text("#!/bin/bash\n", encoding="utf-8")
    after = After(tmp_path, ["1", "2", "3", "4", "5"], any_end=False)
    hand(tmp_path, queue, JOBS[:1], after=after)
    waits = {name.rpartition("-")[2]: list(job.after) for name, job in queue.queue.items()}
    assert waits == {"w01": ["1", "2"], "w02": ["3", "4"], "w03": ["5"], "j1": ["1000", "1001", "1002"]}
    hand(tmp_path, queue, JOBS[2:], after=after)  # the state after an interrupted command: the relays exist
    assert list(queue.queue["study-abc123-j4"].after) == ["1000", "1001", "1002"] and len(queue.queue) == 5
