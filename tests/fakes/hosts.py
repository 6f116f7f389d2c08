"""Virtual host names. Processes see the name of a fake host, so MPI and programs treat it as a separate machine.

The names require a kernel namespace. If the kernel does not permit a namespace, every process sees this machine's own
name.
"""

import contextlib
import ctypes
import os
import socket
import sys
from pathlib import Path

from fakes.state import MARK, RANK_MARK

_NEW_UTS, _NEW_USER = 0x04000000, 0x10000000


def enter(host: str) -> None:
    """Move this process and its future children to the fake host."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_UTS):
        if libc.unshare(_NEW_USER | _NEW_UTS):
            return
        os.environ.setdefault("UCX_POSIX_USE_PROC_LINK", "n")  # ranks of other hosts are in other user namespaces
        with contextlib.suppress(OSError):
            for file, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                Path("/proc/self", file).write_text(text, encoding="ascii")
    name = host.encode()
    libc.sethostname(name, len(name))


def run_on(arguments: list[str]) -> None:
    """Replace this process with ``[-n] HOST COMMAND...``, as ssh and blaunch do. A shell parses the command.

    Parameters
    ----------
    arguments
        The arguments. With ``-n``, which is always assumed, stdin is empty.
    """
    host, *command = arguments[1:] if arguments[:1] == ["-n"] else arguments
    enter(host)
    os.environ.setdefault(RANK_MARK, host)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.execv("/bin/sh", ["sh", "-c", " ".join(command)])


def main() -> None:
    """Run a command on a host of the job. Fake launchers run this file."""
    if MARK not in os.environ:
        sys.exit("this starts ranks inside a job of hpcbench's fake")
    run_on(sys.argv[1:])


def why_not() -> str | None:
    """Return the reason why ranks cannot see the names of fake hosts here, or None if they can."""
    child = os.fork()
    if not child:
        enter("probe")
        os._exit(int(socket.gethostname() != "probe"))
    if os.waitpid(child, 0)[1] == 0:
        return None
    return "pretended hosts need namespaces, which are denied here: run as root, or a container with --privileged"
