"""Claims on jobs. A job may be submitted or started twice, but only one script at a time holds the claim.

Claims are numbered hard links. On every file system, including NFS, only one process can create the next link. Claims
are never removed, because two processes could remove them at the same time.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.claim import DIRECTORY
from hpcbench.contract.state import NO_ROOM_EXIT
from hpcbench.contract.times import format_now
from hpcbench.files import exists, read_json
from hpcbench.job.allocation import Lookup
from hpcbench.job.processes import is_running_here
from hpcbench.job.status_files import StatusFiles

REFUSED = 73
"""Exit status of a script whose job is already claimed."""
_UNIQUE_NAME = re.compile(r"[-_][0-9a-f]{6}[-_][aj][0-9]")
"""Part of a job's queue name that is unique to each submission."""


class ClaimError(Exception):
    """The job cannot be claimed. The job's files are unchanged."""

    def __init__(self, message: str, status: int = REFUSED) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class HeldClaim:
    """A script's claim on its job."""

    path: Path
    files: StatusFiles
    is_new: bool = True
    """Whether this process created the claim. The flag is False if the script already held the claim."""

    def is_ours(self) -> bool:
        """Return whether this is the latest claim. Another script may claim a job that is reported as ended."""
        return not exists(self.path.with_name(str(int(self.path.name) + 1)))

    def release(self) -> None:
        """Release the claim, so that another script can claim the job."""
        self.files.write(self.path.with_name(f"{self.path.name}.end"), lambda: f"{format_now()}\n")


@dataclass(frozen=True)
class Claimant:
    """A script that requests a claim on its job."""

    holder: str
    """Scheduler id of the job, or the process identity."""
    process: str
    """Identity of the script's process, as returned by `identify_process`."""
    name: str
    """Name of the job in the queue."""
    start: str
    """Start time."""


def claim_job(directory: Path, claimant: Claimant, is_listed: Lookup, files: StatusFiles) -> HeldClaim:
    """Create the next claim on a job.

    Raises
    ------
    ClaimError
        Another script holds or may hold the claim, or the claim cannot be written.
    """
    place = directory / DIRECTORY
    draft = place / f".{os.uname().nodename}.{os.getpid()}"
    fields = {key: getattr(claimant, key) for key in ("holder", "process", "name", "start")}

    def write() -> bool:
        try:
            place.mkdir(exist_ok=True)
            draft.write_text(f"{json.dumps(fields)}\n", encoding="utf-8")
        except OSError as error:
            files.note_failure(error)
            return False
        return True

    try:
        if not write() and not write():
            raise ClaimError(files.failure, NO_ROOM_EXIT)
        files.failure = ""
        last = 0
        while True:
            while exists(place / str(last + 1)):
                last += 1
            if last and (earlier := _check_last(place / str(last), claimant, is_listed)) is not None:
                return HeldClaim(earlier, files, is_new=False)
            path = place / str(last + 1)
            try:
                os.link(draft, path)
            except OSError as error:
                if not exists(path):
                    raise ClaimError(f"cannot create {path.absolute()} as a link: {error.strerror}") from None
            if path.samefile(draft):  # a file server may report a failure although it has created the link
                return HeldClaim(path, files)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _check_last(last: Path, claimant: Claimant, is_listed: Lookup) -> Path | None:
    """Return the last claim if this script holds it, or None if the holder of that claim has ended.

    Raises
    ------
    ClaimError
        The holder of the last claim is still running, or may be running.
    """
    if _UNIQUE_NAME.search(claimant.name):  # two jobs with this name result from a submission that was sent twice
        for path in last.parent.glob("[0-9]*"):
            fields = read_json(path) or {}
            if fields.get("name") == claimant.name and fields.get("holder") != claimant.holder:
                raise ClaimError(f"was claimed more than once, and another script holds the claim: see {last.parent}")
    if exists(last.with_name(f"{last.name}.end")):
        return None
    fields = read_json(last) or {}
    holder, process = fields.get("holder"), fields.get("process")
    if not isinstance(holder, str) or not isinstance(process, str):
        raise ClaimError(
            f"{last} cannot be read, so another script may be running the job: remove the file if no other script is"
        )
    if process == claimant.process:
        return last
    if holder in (claimant.holder, process):
        listed = is_running_here(process)
        if listed is None and holder == claimant.holder:
            return None  # the job was requeued and now runs on another node
    else:
        listed = is_listed(holder, process)
    if listed is None:
        raise ClaimError(
            f"may still be running in job {holder}, whose state is unknown: remove {last} if job {holder} is over"
        )
    if listed:
        raise ClaimError(f"is running in job {holder}: see {last}")
    return None
