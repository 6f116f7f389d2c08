"""Disk space check for results: free bytes, free inodes, and the user's quota."""

import errno
import os
import shutil
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.files import shown_path

_A_STEP, _A_RUN = 400, 1 << 20
"""Log bytes per step, and bytes per run for all other files except checkpoints, traces and sampled messages."""
_LARGEST = 1 << 30
"""Maximum size of the trial file in bytes.

If more space is required, it is only compared with the free space.
"""
_AMPLE = 100
"""Ratio of free space to log size above which no note is printed."""
_FILES = 20
"""Number of files per run, including job files."""


def check_room(root: Path, *, runs: int, steps: int) -> str:
    """Check that the logs fit on the disk. Return a note for the user if space is low.

    Quotas can only be tested by trial: a file of the required size is created and deleted.

    Raises
    ------
    UserError
        There is not enough space.
    """
    need = runs * (_A_RUN + steps * _A_STEP)
    where = shown_path(root.parent)
    free = shutil.disk_usage(root).free
    names = os.statvfs(root)
    remedy = "free some space, or choose another directory with --out"
    if free < need:
        raise UserError(f"{where}: only {_size(free)} are free, but the logs need {_size(need)}: {remedy}")
    if names.f_files and names.f_favail < runs * _FILES:
        raise UserError(
            f"{where}: only {names.f_favail} more files can be created, but the runs need {runs * _FILES}: {remedy}"
        )
    trial = root / ".room"
    try:
        with trial.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, min(need, _LARGEST))
    except OSError as error:
        if error.errno in (errno.EDQUOT, errno.ENOSPC, errno.EFBIG):
            what = "your quota" if error.errno == errno.EDQUOT else "the file system"
            raise UserError(f"{where}: {what} leaves no space for the logs ({_size(need)}): {remedy}") from None
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # file system without support for allocation
            raise
    finally:
        trial.unlink(missing_ok=True)
    if free > _AMPLE * need:
        return ""
    return f"{_size(free)} are free for results; logs need about {_size(need)}, plus checkpoints and traces"


def _size(number: int) -> str:
    for scale, name in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if number >= 1 << scale:
            return f"{number / (1 << scale):.1f} {name}"
    return f"{number} B"
