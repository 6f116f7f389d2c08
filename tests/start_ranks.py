"""Functions that start MPI programs. Each rank uses a new interpreter, or is forked from the session's server."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MPIEXEC = Path(sys.executable).with_name("mpiexec")
HERE = Path(__file__).parent
SERVER, CLIENT = (HERE / name for name in ("rank_server.py", "rank_client.py"))

SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "parallel"), *os.environ.get("PYTHONPATH", "").split()]),
}


class RankServer:
    """The process of `rank_server.py`, started when the first rank is requested."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="ranks")
        self._process: subprocess.Popen[bytes] | None = None

    def client(self) -> list[str]:
        """Return the launcher arguments that precede a script and its arguments."""
        path = f"{self._place.name}/socket"
        if self._process is None:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(path)
                listening.listen(64)  # ranks may connect before the imports are complete
                self._process = subprocess.Popen(
                    [sys.executable, str(SERVER)],
                    stdin=listening,
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, **SETTINGS},
                    start_new_session=True,
                )
        return [sys.executable, "-I", "-S", str(CLIENT), path]

    def python(self, folder: Path) -> Path:
        """Write an interpreter for a site, which forks training ranks and runs Python for everything else.

        A signal ends the launcher's processes before they can print a message.
        """
        path = folder / "python"
        forked, python = shlex.join(self.client()), shlex.quote(sys.executable)
        path.write_text(
            f'#!/bin/sh\ncase " $* " in\n*\' -m hpcbench.train \'*) exec {forked} "$@" ;;\nesac\nexec {python} "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
        return path

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._place.cleanup()


def run_ranks(
    n: int,
    script: Path,
    *arguments: str,
    server: RankServer | None = None,
    timeout: float = 900,
    bind: str = "none",
    abort: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a Python script on `n` ranks with one thread each, bound according to the launcher option `bind`.

    Parameters
    ----------
    server
        Server that forks the ranks. Without a server, or if the environment contains mpi4py settings, each rank starts
        a new interpreter.
    abort
        Whether an exception on one rank ends all ranks. If not, other ranks could wait for the failed rank forever.
    """
    mpiexec = str(MPIEXEC) if MPIEXEC.exists() else shutil.which("mpiexec")
    assert mpiexec, "no mpiexec next to the interpreter nor on PATH: pip install mpich"
    if server is None or any(name.startswith("MPI4PY_RC_") for name in os.environ):
        python = [sys.executable]
    else:
        python = server.client()
    program = [*python, *(["-m", "mpi4py"] if abort else []), str(script), *arguments]
    command = [mpiexec, "-n", str(n), "-bind-to", bind, *program]
    environment = {**os.environ, **SETTINGS}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, stdin=subprocess.DEVNULL
    )
