"""Server that forks MPI ranks after it has imported PyTorch, mpi4py and hpcbench. Stdin is a listening socket.

The imports of a rank occupy a core for 1 to 4 s, which is longer than most engine tests. The launcher starts
`rank_client.py` instead of a rank. The client passes its files, environment, directory and cores to the server, and
waits. MPI is initialized after the fork. All ranks end with the process that started the server.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import mpi4py

mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # a rank initializes MPI itself, and MPI is finalized as usual

from mpi4py import MPI  # noqa: E402

from hpcbench.comm import wait  # noqa: E402

PACKAGES = ("hpcbench.codecs", "hpcbench.comm", "hpcbench.parallel", "hpcbench.predict", "hpcbench.train")
PR_SET_PDEATHSIG = 1
LATE = "torch.fx.experimental.symbolic_shapes"
"""Module that `Tensor.backward` imports if a gradient is passed to it.

The import, which includes SymPy, takes over a second.
"""

LONGEST_PAUSE_S = 1e-3
"""Longest sleep of a waiting rank. Many ranks share each core, so waiting must not occupy a core."""


class Place(NamedTuple):
    """The process state that a rank takes over from its client. `numbers` are the client's descriptors for `files`."""

    program: list[str]
    environment: dict[str, str]
    directory: str
    cores: list[int]
    numbers: list[int]
    files: list[int]


def import_all() -> None:
    """Import the modules that ranks need, and load the training text."""
    for name in ("torch", LATE):
        importlib.import_module(name)
    for package in PACKAGES:
        for folder in importlib.import_module(package).__path__:
            for file in set(Path(folder).glob("[!_]*.py")) - {
                Path(folder, "numcodecs_door.py")
            }:  # for zarr, not for ranks
                importlib.import_module(f"{package}.{file.stem}")
    importlib.import_module("tiers")  # the cases of many workers, and pytest
    importlib.import_module("shared_text").corpus()
    wait._MOST = LONGEST_PAUSE_S
    gc.collect()
    gc.freeze()  # a rank's garbage collections would copy every page


def serve(listening: socket.socket) -> Place:
    """Fork a rank for each client. The function returns only in the forked ranks."""
    ranks: dict[int, tuple[int, socket.socket]] = {}
    while True:
        clients = {client.fileno(): pid for pid, client in ranks.values()}
        for end in select.select([listening.fileno(), *ranks, *clients], [], [])[0]:
            if end == listening.fileno():
                client = listening.accept()[0]
                if (place := receive(client)) is None:
                    client.close()
                    continue
                pid = os.fork()
                if not pid:
                    for connection in (listening, client, *(other for _, other in ranks.values())):
                        connection.detach()  # otherwise its destructor would close a descriptor of the server
                    return place
                for file in place.files:
                    os.close(file)
                ranks[os.pidfd_open(pid)] = pid, client
            elif end in clients:  # the launcher has killed it
                os.kill(clients[end], signal.SIGKILL)
            else:
                pid, client = ranks.pop(end)
                os.close(end)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with client, suppress(BrokenPipeError):
                    client.sendall(status.to_bytes(4, "little", signed=True))
                break  # its client is no longer in the list


def receive(client: socket.socket) -> Place | None:
    """Read the message of `rank_client.py`, or None if the client was killed before the end of the message."""
    head, files, _, _ = socket.recv_fds(client, 4, 8)
    message = b""
    while len(message) < int.from_bytes(head, "little"):
        if not (more := client.recv(1 << 16)):
            break
        message += more
    else:
        if head:
            return Place(*marshal.loads(message), files)
    for file in files:
        os.close(file)
    return None


def take(place: Place) -> None:
    """Become the program that the launcher started."""
    die_with_parent()
    free = max(*place.numbers, *place.files, 100) + 1  # with many ranks, the last ones have high descriptor numbers
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, free) for file in place.files]
    os.closerange(3, free)
    for file, number in zip(aside, place.numbers, strict=True):
        os.dup2(file, number)
    os.closerange(free, free + len(aside))
    os.environ.clear()
    os.environ.update(place.environment)
    os.chdir(place.directory)
    os.sched_setaffinity(0, place.cores)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def skip_destructors() -> None:
    """At the exit of this process, skip the destructors of the libraries that the server has loaded.

    Those of PyTorch take 0.1 s of processor time in each rank. MPI is initialized later, and handlers at exit run in
    reverse order, so MPI's own handlers still run. The exit status does not change.
    """
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)


def run(program: list[str]) -> None:
    """Run a script, or a module after ``-m``, like Python. After ``-m mpi4py``, behave like mpi4py."""
    skip_destructors()
    MPI.Init_thread()
    mpi4py.rc.initialize = True
    if program[0] == "-u":
        program = program[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if program[:2] == ["-m", "mpi4py"]:
        sys.argv = program[1:]
        importlib.import_module("mpi4py.run").main()
    elif program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = ""
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


def end() -> NoReturn:
    """End a rank that succeeded, without destroying its objects.

    Python would destroy all objects of the server, which copies their pages: 0.2 s of processor time in each rank.
    Otherwise, the rank ends like a Python program. Ranks that fail are ended by Python.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # destroys the cycles of the program, like Python
    if not MPI.Is_finalized():
        MPI.Finalize()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.PyDLL(None).exit(0)  # holds the interpreter's lock, so no other thread continues
    raise AssertionError("exit returned")


if __name__ == "__main__":
    die_with_parent()
    import_all()
    asked = serve(socket.socket(fileno=0))
    take(asked)
    try:
        run(asked.program)
    except SystemExit as error:
        if error.code:
            raise
    end()
