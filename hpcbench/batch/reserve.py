"""Reserved disk space, so that the end of a job can be recorded on a full disk."""

import errno
from collections.abc import Callable
from pathlib import Path

FILE = "reserve"
_SIZE = 1 << 14
_FULL = (errno.ENOSPC, errno.EDQUOT)


def set_aside(directory: Path, size: int = _SIZE) -> None:
    """Reserve space in a directory. This is a no-op if space is already reserved.

    Raises
    ------
    OSError
        The file cannot be written, for example because the disk is full.
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
    """Write a file. If the disk is full, release the space reserved in the directory and try again.

    Raises
    ------
    OSError
        The disk is full and no space is reserved, or the write fails for another reason.
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
    """Describe a disk error and the file system of a path."""
    place = path.absolute()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return f"{place}: {error.strerror or error}"
