"""Claim on a job. A job may be submitted or started twice, but only one script at a time has the claim.

The next claim is a hard link with the next number. On every file system, also NFS, only one process can create it.
Claims are never removed, because two processes could do so at the same time.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.claim import DIRECTORY
from hpcbench.contract.times import format_now
from hpcbench.files import exists, read_json
from hpcbench.job.allocation import Lookup
from hpcbench.job.processes import is_running_here
from hpcbench.job.status_files import StatusFiles

REFUSED = 73
"""Exit status of a script that found the job taken."""
_UNIQUE_NAME = re.compile(r"[-_][0-9a-f]{6}[-_][aj][0-9]")
"""Part of the names under which hpcbench submits jobs. Each submission has a new one."""


class ClaimError(Exception):
    """The job cannot be claimed. Its files are unchanged."""

    def __init__(self, message: str, status: int = REFUSED) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class HeldClaim:
    """The claim of this script on its job."""

    path: Path
    files: StatusFiles
    is_new: bool = True
    """Whether this process made the claim; otherwise this script had it before."""

    def is_ours(self) -> bool:
        """Return whether no other script has claimed the job, because its scheduler reported ours as over."""
        return not exists(self.path.with_name(str(int(self.path.name) + 1)))

    def release(self) -> None:
        """Release the job for the next script."""
        self.files.write(self.path.with_name(f"{self.path.name}.end"), lambda: f"{format_now()}\n")


@dataclass(frozen=True)
class Claimant:
    """A script that needs a claim on its job."""

    holder: str
    """The scheduler's id of the job, or the process."""
    process: str
    """The script's process, as `identify_process` returns it."""
    name: str
    """The job's name in its queue."""
    start: str
    """Time of its start."""


def claim_job(directory: Path, claimant: Claimant, is_listed: Lookup, files: StatusFiles) -> HeldClaim:
    """Make the next claim on a job.

    Parameters
    ----------
    directory
        The job's directory.
    claimant
        The script that claims the job.
    is_listed
        Whether the scheduler lists a job.
    files
        Writer of the claim's file.

    Raises
    ------
    ClaimError
        Another script has the job, or may have it, or no claim can be written.
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
            raise ClaimError(files.failure, 74)
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
                    raise ClaimError(f"cannot make {path.absolute()} as a link: {error.strerror}") from None
            if path.samefile(draft):  # a file server may create the link and still report a failure
                return HeldClaim(path, files)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _check_last(last: Path, claimant: Claimant, is_listed: Lookup) -> Path | None:
    """Return the last claim if it is this script's; None if its holder is over.

    Raises
    ------
    ClaimError
        Its holder is not over, or may not be.
    """
    if _UNIQUE_NAME.search(claimant.name):  # a second job of this name comes from one submission that was sent twice
        for path in last.parent.glob("[0-9]*"):
            fields = read_json(path) or {}
            if fields.get("name") == claimant.name and fields.get("holder") != claimant.holder:
                raise ClaimError(f"was taken more than once, and another script has it, see {last.parent}")
    if exists(last.with_name(f"{last.name}.end")):
        return None
    fields = read_json(last) or {}
    holder, process = fields.get("holder"), fields.get("process")
    if not isinstance(holder, str) or not isinstance(process, str):
        raise ClaimError(
            f"{last} cannot be read: another script may have the job: remove that file if no other script has it"
        )
    if process == claimant.process:
        return last
    if holder in (claimant.holder, process):
        listed = is_running_here(process)
        if listed is None and holder == claimant.holder:
            return None  # the job was requeued, and is on another node now
    else:
        listed = is_listed(holder, process)
    if listed is None:
        raise ClaimError(f"job {holder} may still run it, and its state is unknown: remove {last} if it is over")
    if listed:
        raise ClaimError(f"job {holder} runs it, see {last}")
    return None
