"""One command at a time in a directory of submissions, on whichever login node it was given.

The lock is a file that says who made it. Advisory locks are switched off on some parallel file systems, and on others
do not reach from one login node to the next; that only one can make a file holds on all of them.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json
from hpcbench.batch.processes import alive, here, identity
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import shown_path

_SILENCE = 600.0
"""Seconds after which a holder on another machine, who says at every step that it is there, is taken for dead."""


class Lock:
    """Held by this process; see `locked`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def still_here(self) -> None:
        """Tell those on other machines that the holder lives; to be called now and then in long work."""
        with contextlib.suppress(OSError):
            os.utime(self._path)


@contextlib.contextmanager
def locked(directory: Path, *, patience: float = 60.0) -> Iterator[Lock]:
    """Keep other commands out of the directory, which exists.

    Parameters
    ----------
    patience
        Seconds to wait for another one to end.

    Raises
    ------
    UserError
        Another one holds it for longer than that.
    """
    path = directory / ".lock"
    deadline = time.monotonic() + patience
    while not _make(path):
        holder = read_json(path)
        if holder is not None and _dead(holder, path):
            _take_away(path, holder)
        elif time.monotonic() > deadline:
            who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "somebody"
            raise UserError(
                f"{shown_path(path)}: held by {who}: wait for that command to end, or remove the file if there is none"
            )
        else:
            time.sleep(0.1)
    try:
        yield Lock(path)
    finally:
        path.unlink(missing_ok=True)


def _make(path: Path) -> bool:
    """Make the file with its content, at once, unless there is one."""
    own = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    own.write_text(json.dumps({**(identity(os.getpid()) or {}), "token": own.name}), encoding="utf-8")
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def _dead(holder: dict[str, Any], path: Path) -> bool:
    process = {key: value for key, value in holder.items() if key != "token"}
    if here(process):
        return not alive(process)
    try:
        return time.time() - path.stat().st_mtime > _SILENCE
    except FileNotFoundError:
        return False


def _take_away(path: Path, holder: dict[str, Any]) -> None:
    """Remove a dead holder's file; one that somebody else has made since is put back."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if read_json(aside) != holder:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()
