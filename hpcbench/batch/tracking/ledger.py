"""What was handed to the scheduler: one file a job or array, written before it is handed in and again after.

A file without an id tells that somebody died, or lost the connection, between the two: whoever comes next looks the
name up and adopts what the scheduler knows, or hands it in again.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, seconds, write_json
from hpcbench.batch.reserve import set_aside, written
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.contract.job_state import SubmissionRecord
from hpcbench.errors import UserError
from hpcbench.files import shown_path


@dataclass(frozen=True, kw_only=True)
class SubmittedJob(BatchJob):
    """A job or an array, handed in once."""

    number: int
    begun: dict[str, int]
    """Attempts that each job had begun before: its marks of these are of the past."""
    time: str
    id: str | None = None
    elements: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    said: str = ""
    cancelled: str | None = None
    """When it was cancelled by us."""

    def element(self, job: str) -> str | None:
        """By which id the scheduler knows one of its jobs; None where the answer is missing."""
        return self.elements[self.jobs.index(job)] if self.elements else None

    def handed_in(self, job: str) -> SubmissionRecord:
        """As one of its jobs is judged by it."""
        return SubmissionRecord(self.time, self.begun[job], self.id is not None, self.cancelled)


_SUBMITTED = TypeAdapter(SubmittedJob)


class Ledger:
    """The jobs of a submission that were handed in.

    Parameters
    ----------
    root
        The submission's directory.

    Raises
    ------
    UserError
        A file of it is damaged.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directory = root / "handed"
        self._submitted: dict[int, SubmittedJob] = {}
        self._last: dict[str, list[int]] = {}
        """Numbers of the handings-in of each job."""
        found = (_read(path) for path in self._directory.glob("[0-9]*.json"))
        for submitted in sorted(filter(None, found), key=lambda submitted: submitted.number):
            self._add(submitted)

    @property
    def submitted(self) -> list[SubmittedJob]:
        """In the order in which they were handed in."""
        return list(self._submitted.values())

    def open(self, job: BatchJob, begun: dict[str, int]) -> SubmittedJob:
        """Write down that a job is about to be handed in."""
        self._directory.mkdir(exist_ok=True)
        set_aside(self._directory)  # else a full disk would keep a job that was taken from being written down
        number = next(reversed(self._submitted), 0) + 1
        submitted = SubmittedJob(**asdict(job), number=number, begun=begun, time=now())
        self._write(submitted)
        self._add(submitted)
        return submitted

    def close(self, submitted: SubmittedJob, receipt: Receipt) -> SubmittedJob:
        """Write down what the scheduler answered."""
        return self._change(
            submitted,
            id=receipt.id,
            elements=list(receipt.elements),
            argv=[str(word) for word in receipt.argv],
            said=receipt.said[:4096],
        )

    def drop(self, submitted: SubmittedJob) -> None:
        """Forget a job that the scheduler did not take."""
        self._path(submitted).unlink()
        del self._submitted[submitted.number]
        for job in submitted.jobs:
            self._last[job].remove(submitted.number)

    def cancel(self, submitted: SubmittedJob) -> SubmittedJob:
        """Write down that it is being cancelled."""
        return self._change(submitted, cancelled=now())

    def lives_on(self, submitted: SubmittedJob) -> None:
        """Write down that its scheduler did not cancel it."""
        self._change(submitted, cancelled=None)

    def times(self, job: str) -> int:
        """How often a job was handed in."""
        return len(self._last.get(job, ()))

    def of(self, job: str) -> SubmittedJob | None:
        """The last handing-in of a job; None where there was none."""
        return self._submitted[self._last[job][-1]] if self._last.get(job) else None

    def element(self, job: str) -> str | None:
        """By which id the scheduler knows the job; None where it was not handed in, or the answer is missing."""
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
        written(self._directory, lambda: write_json(self._path(submitted), asdict(submitted), durable=True))

    def _path(self, submitted: SubmittedJob) -> Path:
        return self._directory / f"{submitted.number:04d}.json"


def _read(path: Path) -> SubmittedJob | None:
    try:
        submitted = _SUBMITTED.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # dropped meanwhile, by who hands in
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        wrong = f"{field}: {first['msg']}"
    else:
        if submitted.elements and len(submitted.elements) != len(submitted.jobs):
            wrong = f"elements: {len(submitted.elements)} ids for {len(submitted.jobs)} jobs"
        elif set(submitted.begun) != set(submitted.jobs) or seconds(submitted.time) is None:
            wrong = "begun or time: not what was written"
        else:
            return submitted
    raise UserError(f"{shown_path(path)}: damaged: {wrong}: remove it, then look at the queue") from None
