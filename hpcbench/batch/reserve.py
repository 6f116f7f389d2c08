"""Reserved space on a disk, so that the end of a job can be recorded when the disk is full."""

import errno
from collections.abc import Callable
from pathlib import Path

FILE = "reserve"
_SIZE = 1 << 14
_FULL = (errno.ENOSPC, errno.EDQUOT)


def set_aside(directory: Path, size: int = _SIZE) -> None:
    """Set space in a directory aside, unless that was done before.

    Parameters
    ----------
    directory
        The directory.
    size
        Bytes.

    Raises
    ------
    OSError
        The disk is full, for example.
    """
    path = directory / FILE
    try:
        if path.stat().st_size >= _SIZE:
            return
    except FileNotFoundError:
        pass
    try:
        path.write_bytes(b" " * size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def written(directory: Path, write: Callable[[], None]) -> None:
    """Write a file; on a full disk, in the space that was set aside in the directory.

    Raises
    ------
    OSError
        The disk is full and no space was set aside, or the disk has another problem.
    """
    try:
        write()
    except OSError as error:
        path = directory / FILE
        if error.errno not in _FULL or not path.exists():
            raise
        path.unlink()
        write()


def describe_disk_error(path: Path, error: OSError) -> str:
    """Return the file system on which a path lies, and what is wrong with it."""
    place = path.absolute()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return f"{place}: {error.strerror or error}"
