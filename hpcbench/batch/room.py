"""Whether the file system of the results takes what the jobs will write: free space, files, and the user's quota."""

import errno
import os
import shutil
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.files import shown_path

_A_STEP, _A_RUN = 400, 1 << 20
"""Bytes of a step's line, and of all else that a run writes but checkpoints, traces and kept messages."""
_LARGEST = 1 << 30
"""Bytes that are tried at most: what is more is compared with what the file system says is free."""
_AMPLE = 100
"""Times what logs need, from which on nobody needs to be told."""
_FILES = 20
"""Files of a run and its job."""


def check_room(root: Path, *, runs: int, steps: int) -> str:
    """Try whether there is room for the logs of some runs; returns a line for the user where there is little.

    A quota tells nobody what it leaves: so a file of that size is made, and is gone again.

    Parameters
    ----------
    root
        The submission's directory.
    runs, steps
        Runs, and steps of each.

    Raises
    ------
    UserError
        There is none.
    """
    need = runs * (_A_RUN + steps * _A_STEP)
    where = shown_path(root.parent)
    free = shutil.disk_usage(root).free
    names = os.statvfs(root)
    remedy = "free some, or give another --out"
    if free < need:
        raise UserError(f"{where}: {_size(free)} are free, and logs need {_size(need)}: {remedy}")
    if names.f_files and names.f_favail < runs * _FILES:
        raise UserError(f"{where}: {names.f_favail} more files can be made, and runs need {runs * _FILES}: {remedy}")
    trial = root / ".room"
    try:
        with trial.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, min(need, _LARGEST))
    except OSError as error:
        if error.errno in (errno.EDQUOT, errno.ENOSPC, errno.EFBIG):
            what = "your quota" if error.errno == errno.EDQUOT else "the file system"
            raise UserError(f"{where}: {what} has no room for the logs, {_size(need)}: {remedy}") from None
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot set room aside
            raise
    finally:
        trial.unlink(missing_ok=True)
    if free > _AMPLE * need:
        return ""
    return f"{_size(free)} are free for results; logs need about {_size(need)}, checkpoints and traces come on top"


def _size(number: int) -> str:
    for scale, name in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if number >= 1 << scale:
            return f"{number / (1 << scale):.1f} {name}"
    return f"{number} B"
