"""One command at a time in a directory of submissions, on whichever login node it was given.

The lock is a file that says who made it. Advisory locks are switched off on some parallel file systems, and on others
do not reach from one login node to the next; that only one can make a file holds on all of them.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench.batch.schedulers.processes import alive, here, identity
from hpcbench.errors import UserError
from hpcbench.files import read_json, shown_path

_SILENCE = 600.0
"""Seconds after which a holder on another machine, who says again and again that it is there, is taken for dead."""
_BEAT = 60.0
"""Seconds between two such words."""


@contextlib.contextmanager
def locked(directory: Path, *, patience: float = 60.0) -> Iterator[None]:
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
    token = _acquire(path, time.monotonic() + patience)
    over = threading.Event()
    heart = threading.Thread(target=_beat, args=(path, token, over), daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
        _release(path, token)


def _acquire(path: Path, deadline: float) -> str:
    """Make the file when there is none, or none of a living holder; returns the token that says it is ours."""
    while (token := _make(path)) is None:
        holder = read_json(path)
        if holder is not None and _dead(holder, path):
            # One at a time removes it, and looks again before: else a second one would remove what the first made.
            turn = path.with_name(f"{path.name}.over")
            turn_token = _acquire(turn, deadline)
            try:
                if read_json(path) == holder and _dead(holder, path):
                    path.unlink(missing_ok=True)
            finally:
                _release(turn, turn_token)
        elif time.monotonic() > deadline:
            who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "somebody"
            raise UserError(
                f"{shown_path(path)}: held by {who}: wait for that command to end, or remove the file if there is none"
            )
        else:
            time.sleep(0.1)
    return token


def _make(path: Path) -> str | None:
    """Make the file with its content, at once, unless there is one."""
    own = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        own.write_text(json.dumps({**(identity(os.getpid()) or {}), "token": own.name}), encoding="utf-8")
        os.link(own, path)
    except FileExistsError:
        return None
    finally:
        own.unlink(missing_ok=True)
    return own.name


def _release(path: Path, token: str) -> None:
    """Remove the file, unless somebody took us for dead and made his own."""
    if (read_json(path) or {}).get("token") == token:
        path.unlink(missing_ok=True)


def _beat(path: Path, token: str, over: threading.Event) -> None:
    """Tell those on other machines, whatever takes long here, that the holder lives."""
    while not over.wait(_BEAT):
        with contextlib.suppress(OSError):
            if (read_json(path) or {}).get("token") == token:
                os.utime(path)


def _dead(holder: dict[str, Any], path: Path) -> bool:
    process = {key: value for key, value in holder.items() if key != "token"}
    if here(process):
        return not alive(process)
    try:
        return time.time() - path.stat().st_mtime > _SILENCE
    except FileNotFoundError:
        return False
