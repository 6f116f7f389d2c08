"""Status files of a job and its runs, and disk space reserved for these files."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch import reserve
from hpcbench.contract import mark
from hpcbench.contract.mark import Mark
from hpcbench.contract.times import format_now
from hpcbench.job.messages import print_error

_SPACE = 1 << 16
"""Bytes reserved for the final status of a job or run, and for the last events of its log."""


class StatusFiles:
    """Writer of job files.

    If the disk is full, no exception is raised, and the failure is reported in each status file.
    """

    def __init__(self, root: Path, directory: Path) -> None:
        self.failure = ""
        """File system and error message of the last failed write, or an empty string if no write has failed."""
        self._root = root
        self._directory = directory

    def write(self, path: Path, make_text: Callable[[], str]) -> bool:
        """Write a file atomically. Return whether the write succeeded.

        If the disk is full, the job's reserved space is released and the write is retried. Before the retry, the text
        is created again, because it may now contain the failure.
        """
        return self._try(lambda: self._write(path, make_text())) or self._try(lambda: self._write(path, make_text()))

    def set_aside(self, directory: Path) -> bool:
        """Reserve disk space for the final status of the run or job in this directory."""
        return self._try(lambda: reserve.set_aside(directory, _SPACE))

    def give_back(self, directory: Path) -> None:
        """Release the space reserved in this directory."""
        with contextlib.suppress(OSError):
            (directory / reserve.FILE).unlink(missing_ok=True)

    def note_failure(self, error: OSError) -> None:
        """Store the reason for a failed write and release the job's reserved space."""
        self.failure = reserve.describe_disk_error(self._root, error)
        self.give_back(self._directory)

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except OSError as error:
            self.note_failure(error)
            return False
        return True

    def _write(self, path: Path, text: str) -> None:
        temporary = path.with_name(f"{path.name}.tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@dataclass(kw_only=True)
class StatusRecorder:
    """Recorder of job and run states for one job attempt."""

    files: StatusFiles
    root: Path
    """Submission directory."""
    job: str
    """Name of the job's directory in ``jobs``."""
    id: str
    """Scheduler id of the job."""
    hosts: Sequence[str]
    """Host names of the job's nodes."""
    attempt: int
    """Number of this attempt, starting at 1."""
    start: str
    """Start time of the attempt."""
    is_ours: Callable[[], bool]
    """Function that returns whether this script still holds the claim. If not, nothing is recorded."""

    def record_job(self, state: str, status: int | None = None) -> bool:
        """Write the state of the job. Return whether the write succeeded."""
        return self._write(
            self.root / "jobs" / self.job, self.start, state, status, hosts=tuple(map(make_ascii, self.hosts))
        )

    def record_run(self, run: str, start: str, state: str, status: int | None = None, *, limit: str = "") -> bool:
        """Write the state of a run. Return whether the write succeeded.

        Parameters
        ----------
        state
            ``running`` or ``ended``.
        status
            Exit status, or None while the run is running.
        limit
            Limit that the run reached: ``run_limit``, ``walltime``, or an empty string for none.
        """
        return self._write(self.root / "runs" / run, start, state, status, job=self.job, limit=limit or None)

    def _write(
        self,
        directory: Path,
        start: str,
        state: str,
        status: int | None,
        *,
        hosts: tuple[str, ...] | None = None,
        job: str | None = None,
        limit: str | None = None,
    ) -> bool:
        if not self.is_ours():
            return True
        now = format_now()
        written = self.files.write(
            directory / mark.FILE,
            lambda: mark.format_mark(
                Mark(
                    state,
                    self.attempt,
                    status,
                    start,
                    None if status is None else now,
                    make_ascii(self.id),
                    make_ascii(os.uname().nodename),
                    hosts,
                    job,
                    limit,
                    self.files.failure or None,
                )
            ),
        )
        if not written:
            print_error(f"{now} {self.files.failure}")
        return written


def is_completed(root: Path, run: str) -> bool:
    """Return whether a run was completed by any attempt."""
    status = mark.read_mark(root / "runs" / run)
    return status is not None and status.state == "ended" and status.exit == 0


def keep_old_files(root: Path, run: str) -> None:
    """Rename a run's files from an earlier attempt by appending the number of that attempt."""
    directory = root / "runs" / run
    status = mark.read_mark(directory)
    number = status.attempt if status is not None and status.readable else 0
    for name in ("log.txt", "err.txt", mark.FILE):
        path = directory / name
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f"{path.stem}.{number}{path.suffix}"))
    (directory / "stop").unlink(missing_ok=True)


def make_ascii(text: str) -> str:
    """Replace each byte that is not printable ASCII with a question mark."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in os.fsencode(text))
