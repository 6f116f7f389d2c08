"""Ledger of submitted jobs, with one file per job or array.

Each file is written once before and once after the submission.

A file without an id means that a command was killed or lost its connection during submission. The next command
searches for the job by name. If the scheduler lists the job, the command adopts it. Otherwise the job is resubmitted.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, seconds, write_json
from hpcbench.batch.reserve import set_aside, written
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.contract.job_state import SubmissionRecord
from hpcbench.errors import UserError
from hpcbench.files import shown_path


@dataclass(frozen=True, kw_only=True)
class SubmittedJob(BatchJob):
    """A single submission of a job or array."""

    number: int
    begun: dict[str, int]
    """Number of earlier attempts of each job. Status files of these attempts are ignored."""
    time: str
    id: str | None = None
    elements: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    output: Annotated[str, Field(validation_alias="said")] = ""
    """Standard output and error of the submission command. The key in the file is ``said``."""
    cancelled: str | None = None
    """Time of cancellation by hpcbench."""

    def element(self, job: str) -> str | None:
        """Return the scheduler id of a job, or None if the receipt is missing."""
        return self.elements[self.jobs.index(job)] if self.elements else None

    def make_record(self, job: str) -> SubmissionRecord:
        """Return the record used to resolve a job's state."""
        return SubmissionRecord(self.time, self.begun[job], self.id is not None, self.cancelled)


_SUBMITTED = TypeAdapter(SubmittedJob)


class Ledger:
    """The submitted jobs of a submission.

    Parameters
    ----------
    root
        Directory of the submission.

    Raises
    ------
    UserError
        A file of the ledger is damaged.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directory = root / "handed"
        self._submitted: dict[int, SubmittedJob] = {}
        self._last: dict[str, list[int]] = {}
        """Submission numbers of each job, in ascending order."""
        entries = (_read(path) for path in self._directory.glob("[0-9]*.json"))
        for submitted in sorted(filter(None, entries), key=lambda submitted: submitted.number):
            self._add(submitted)

    @property
    def submitted(self) -> list[SubmittedJob]:
        """The submitted jobs in order of submission."""
        return list(self._submitted.values())

    def open(self, job: BatchJob, begun: dict[str, int]) -> SubmittedJob:
        """Record that a job is about to be submitted."""
        self._directory.mkdir(exist_ok=True)
        set_aside(self._directory)  # allows a submitted job to be recorded on a full disk
        number = next(reversed(self._submitted), 0) + 1
        submitted = SubmittedJob(**asdict(job), number=number, begun=begun, time=now())
        self._write(submitted)
        self._add(submitted)
        return submitted

    def close(self, submitted: SubmittedJob, receipt: Receipt) -> SubmittedJob:
        """Record the scheduler's response."""
        return self._change(
            submitted,
            id=receipt.id,
            elements=list(receipt.elements),
            argv=[str(word) for word in receipt.argv],
            output=receipt.output[:4096],
        )

    def drop(self, submitted: SubmittedJob) -> None:
        """Remove a job that the scheduler did not accept."""
        self._path(submitted).unlink()
        del self._submitted[submitted.number]
        for job in submitted.jobs:
            self._last[job].remove(submitted.number)

    def cancel(self, submitted: SubmittedJob) -> SubmittedJob:
        """Record that the job is being cancelled."""
        return self._change(submitted, cancelled=now())

    def clear_cancellation(self, submitted: SubmittedJob) -> None:
        """Record that the scheduler did not cancel the job."""
        self._change(submitted, cancelled=None)

    def count_submissions(self, job: str) -> int:
        """Return the number of submissions of a job."""
        return len(self._last.get(job, ()))

    def of(self, job: str) -> SubmittedJob | None:
        """Return the last submission of a job, or None if the job was never submitted."""
        return self._submitted[self._last[job][-1]] if self._last.get(job) else None

    def element(self, job: str) -> str | None:
        """Return the scheduler id of a job, or None if the job was not submitted or has no receipt."""
        submitted = self.of(job)
        return submitted.element(job) if submitted is not None else None

    def _add(self, submitted: SubmittedJob) -> None:
        self._submitted[submitted.number] = submitted
        for job in submitted.jobs:
            self._last.setdefault(job, []).append(submitted.number)

    def _change(self, submitted: SubmittedJob, **fields: object) -> SubmittedJob:
        changed = SubmittedJob(**{**asdict(submitted), **fields})
        self._write(changed)
        self._submitted[submitted.number] = changed
        return changed

    def _write(self, submitted: SubmittedJob) -> None:
        content = {"said" if key == "output" else key: value for key, value in asdict(submitted).items()}
        written(self._directory, lambda: write_json(self._path(submitted), content, durable=True))

    def _path(self, submitted: SubmittedJob) -> Path:
        return self._directory / f"{submitted.number:04d}.json"


def _read(path: Path) -> SubmittedJob | None:
    try:
        submitted = _SUBMITTED.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # dropped by another command in the meantime
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        wrong = f"{field}: {first['msg']}"
    else:
        if submitted.elements and len(submitted.elements) != len(submitted.jobs):
            wrong = f"elements: {len(submitted.elements)} ids for {len(submitted.jobs)} jobs"
        elif set(submitted.begun) != set(submitted.jobs) or seconds(submitted.time) is None:
            wrong = "begun or time: inconsistent"
        else:
            return submitted
    raise UserError(f"{shown_path(path)}: damaged: {wrong}: remove the file, then check the queue") from None
