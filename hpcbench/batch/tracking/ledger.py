"""What was handed to the scheduler: one file a parcel, written before it is handed in and again after.

A file without an id tells that somebody died, or lost the connection, between the two: whoever comes next looks the
parcel's name up and adopts what the scheduler knows, or hands it in again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hpcbench.batch.files import now, seconds, write_json
from hpcbench.batch.schedulers.scheduler import Parcel, Receipt
from hpcbench.contract.judge_job import HandedIn
from hpcbench.errors import UserError
from hpcbench.files import shown_path


@dataclass(frozen=True)
class Handed:
    """One handing-in of one parcel."""

    number: int
    name: str
    script: str
    """Relative to the submission."""
    jobs: list[str]
    array: bool
    begun: dict[str, int]
    """Attempts that each job had begun before: its marks of these are of the past."""
    time: str
    after: list[str] = field(default_factory=list)
    after_any: bool = False
    id: str | None = None
    elements: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    said: str = ""
    cancelled: str | None = None
    """When it was cancelled by us."""

    def element(self, job: str) -> str | None:
        """By which id the scheduler knows one of its jobs; None where the answer is missing."""
        return self.elements[self.jobs.index(job)] if self.elements else None

    def handed_in(self, job: str) -> HandedIn:
        """As one of its jobs is judged by it."""
        return HandedIn(self.time, self.begun[job], self.id is not None, self.cancelled)

    def parcel(self, root: Path) -> Parcel:
        """As the scheduler takes it."""
        return Parcel(root / self.script, self.name, self.jobs, self.array, self.after, self.after_any)


_HANDED = TypeAdapter(Handed)


class Ledger:
    """The handed parcels of a submission.

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
        self._parcels: dict[int, Handed] = {}
        self._last: dict[str, list[int]] = {}
        """Numbers of the handings-in of each job."""
        found = (_read(path) for path in self._directory.glob("[0-9]*.json"))
        for handed in sorted(filter(None, found), key=lambda handed: handed.number):
            self._add(handed)

    @property
    def parcels(self) -> list[Handed]:
        """In the order in which they were handed in."""
        return list(self._parcels.values())

    def open(self, name: str, script: str, jobs: Sequence[str], begun: dict[str, int], **more: object) -> Handed:
        """Write down that a parcel is about to be handed in."""
        self._directory.mkdir(exist_ok=True)
        number = next(reversed(self._parcels), 0) + 1
        handed = Handed(number, name, script, list(jobs), begun=begun, time=now(), **more)  # type: ignore[arg-type]
        self._write(handed)
        self._add(handed)
        return handed

    def close(self, handed: Handed, receipt: Receipt) -> Handed:
        """Write down what the scheduler answered."""
        return self._change(
            handed,
            id=receipt.id,
            elements=list(receipt.elements),
            argv=[str(word) for word in receipt.argv],
            said=receipt.said[:4096],
        )

    def drop(self, handed: Handed) -> None:
        """Forget a parcel that the scheduler did not take."""
        self._path(handed).unlink()
        del self._parcels[handed.number]
        for job in handed.jobs:
            self._last[job].remove(handed.number)

    def cancel(self, handed: Handed) -> Handed:
        """Write down that it is being cancelled."""
        return self._change(handed, cancelled=now())

    def lives_on(self, handed: Handed) -> None:
        """Write down that its scheduler did not cancel it."""
        self._change(handed, cancelled=None)

    def times(self, job: str) -> int:
        """How often a job was handed in."""
        return len(self._last.get(job, ()))

    def of(self, job: str) -> Handed | None:
        """The last handing-in of a job; None where there was none."""
        return self._parcels[self._last[job][-1]] if self._last.get(job) else None

    def element(self, job: str) -> str | None:
        """By which id the scheduler knows the job; None where it was not handed in, or the answer is missing."""
        handed = self.of(job)
        return handed.element(job) if handed is not None else None

    def _add(self, handed: Handed) -> None:
        self._parcels[handed.number] = handed
        for job in handed.jobs:
            self._last.setdefault(job, []).append(handed.number)

    def _change(self, handed: Handed, **fields: object) -> Handed:
        changed = Handed(**{**asdict(handed), **fields})
        self._write(changed)
        self._parcels[handed.number] = changed
        return changed

    def _write(self, handed: Handed) -> None:
        write_json(self._path(handed), asdict(handed), durable=True)

    def _path(self, handed: Handed) -> Path:
        return self._directory / f"{handed.number:04d}.json"


def _read(path: Path) -> Handed | None:
    try:
        handed = _HANDED.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # dropped meanwhile, by who hands in
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        wrong = f"{field}: {first['msg']}"
    else:
        if handed.elements and len(handed.elements) != len(handed.jobs):
            wrong = f"elements: {len(handed.elements)} ids for {len(handed.jobs)} jobs"
        elif set(handed.begun) != set(handed.jobs) or seconds(handed.time) is None:
            wrong = "begun or time: not what was written"
        else:
            return handed
    raise UserError(f"{shown_path(path)}: damaged: {wrong}: remove it, then look at the queue") from None
