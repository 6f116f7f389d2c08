"""Room on a disk that is set aside, so that how a job ended can be written where all the rest is taken."""

import errno
from collections.abc import Callable
from pathlib import Path

FILE = "reserve"
_SIZE = 1 << 14
_FULL = (errno.ENOSPC, errno.EDQUOT)


def set_aside(directory: Path) -> None:
    """Take room in a directory, unless that was done before.

    Raises
    ------
    OSError
        There is none.
    """
    path = directory / FILE
    try:
        if path.stat().st_size >= _SIZE:
            return
    except FileNotFoundError:
        pass
    try:
        path.write_bytes(b" " * _SIZE)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def written(directory: Path, write: Callable[[], None]) -> None:
    """Write something; on a full disk, in the room that was set aside in the directory.

    Raises
    ------
    OSError
        The disk takes no more, and there is no room either, or something else is wrong with it.
    """
    try:
        write()
    except OSError as error:
        path = directory / FILE
        if error.errno not in _FULL or not path.exists():
            raise
        path.unlink()
        write()


def disk_words(path: Path, error: OSError) -> str:
    """A disk's refusal, with the file system on which the path lies."""
    place = path.absolute()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return f"{place}: {error.strerror or error}"
