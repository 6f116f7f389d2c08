"""What was handed to the scheduler: one file a parcel, written before it is handed in and again after.

A file without an id tells that somebody died, or lost the connection, between the two: whoever comes next looks the
parcel's name up and adopts what the scheduler knows, or hands it in again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hpcbench.batch.files import now, read_json, write_json
from hpcbench.batch.scheduler import Parcel, Receipt
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import shown_path


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

    def parcel(self, root: Path) -> Parcel:
        """As the scheduler takes it."""
        return Parcel(root / self.script, self.name, self.jobs, self.array, self.after, self.after_any)


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
        self._directory = root / "handed"
        self.parcels: list[Handed] = []
        for path in sorted(self._directory.glob("[0-9]*.json")):
            try:
                self.parcels.append(Handed(**(read_json(path) or {})))
            except TypeError as error:
                raise UserError(f"{shown_path(path)}: damaged: {error}: remove it, then look at the queue") from None

    def open(self, name: str, script: str, jobs: Sequence[str], begun: dict[str, int], **more: object) -> Handed:
        """Write down that a parcel is about to be handed in."""
        self._directory.mkdir(exist_ok=True)
        number = max((parcel.number for parcel in self.parcels), default=0) + 1
        handed = Handed(number, name, script, list(jobs), begun=begun, time=now(), **more)  # type: ignore[arg-type]
        self._put(handed)
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
        self.parcels = [parcel for parcel in self.parcels if parcel.number != handed.number]

    def cancel(self, handed: Handed) -> None:
        """Write down that it is being cancelled."""
        self._change(handed, cancelled=now())

    def of(self, job: str) -> Handed | None:
        """The last handing-in of a job; None where there was none."""
        return next((parcel for parcel in reversed(self.parcels) if job in parcel.begun), None)

    def element(self, job: str) -> str | None:
        """By which id the scheduler knows the job; None where it was not handed in, or the answer is missing."""
        handed = self.of(job)
        return handed.elements[handed.jobs.index(job)] if handed is not None and handed.elements else None

    def _change(self, handed: Handed, **fields: object) -> Handed:
        changed = Handed(**{**asdict(handed), **fields})
        self._put(changed)
        return changed

    def _put(self, handed: Handed) -> None:
        write_json(self._path(handed), asdict(handed))
        self.parcels = sorted(
            [*(p for p in self.parcels if p.number != handed.number), handed], key=lambda parcel: parcel.number
        )

    def _path(self, handed: Handed) -> Path:
        return self._directory / f"{handed.number:04d}.json"
