"""Lock of a submission directory that works across login nodes.

The lock is a file that names its holder. On some parallel file systems, advisory locks are disabled. On others, they
have no effect on other login nodes. Exclusive file creation works on all file systems.

filelock's `SoftFileLease` is not used, because a waiting command must itself observe ten minutes without an update.
Since commands wait for only one minute, they would give up after another login node has crashed. The lock of a dead
holder is removed under a second lock.
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
"""Seconds without an update after which a lock holder on another machine is considered dead."""
_BEAT = 60.0
"""Seconds between two updates of the lock file."""


@contextlib.contextmanager
def locked(directory: Path, *, patience: float = 60.0) -> Iterator[None]:
    """Lock an existing directory against other commands.

    Parameters
    ----------
    patience
        Seconds to wait while another command holds the lock.

    Raises
    ------
    UserError
        Another command still holds the lock after this time.
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
    """Create the lock file if it does not exist or its holder is dead. Return this holder's token."""
    while (token := _make(path)) is None:
        holder = read_json(path)
        if holder is not None and _dead(holder, path):
            # One process at a time rechecks and removes the file. Otherwise a second process could remove a new lock.
            turn = path.with_name(f"{path.name}.over")
            turn_token = _acquire(turn, deadline)
            try:
                if read_json(path) == holder and _dead(holder, path):
                    path.unlink(missing_ok=True)
            finally:
                _release(turn, turn_token)
        elif time.monotonic() > deadline:
            who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "an unknown process"
            raise UserError(
                f"{shown_path(path)}: is held by {who}: wait for that command to end, or remove the file if that "
                "command no longer runs"
            )
        else:
            time.sleep(0.1)
    return token


def _make(path: Path) -> str | None:
    """Atomically create the file with its content. Return None if the file exists."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        draft.write_text(json.dumps({**(identity(os.getpid()) or {}), "token": draft.name}), encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        return None
    finally:
        draft.unlink(missing_ok=True)
    return draft.name


def _release(path: Path, token: str) -> None:
    """Remove the lock file, unless another process considered this holder dead and took over the lock."""
    if (read_json(path) or {}).get("token") == token:
        path.unlink(missing_ok=True)


def _beat(path: Path, token: str, over: threading.Event) -> None:
    """Update the lock file periodically, to show other machines that the holder is alive."""
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
