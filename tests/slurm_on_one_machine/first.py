"""The first process of a cluster, which has its own namespaces and starts and ends the daemons on request."""

import os
import select
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.errors import UserError

_HERE = Path(__file__).resolve().parent
_NAMESPACES = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_ANSWER = 60.0
"""Timeout for a response in seconds."""


def allowed() -> bool:
    """Return whether namespaces can be created here."""
    return subprocess.run([*_NAMESPACES, "true"], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


def node_command(node: str) -> list[str]:
    """Return the command that starts a node. The node's namespaces are nested in the cluster's namespaces."""
    return [*_NAMESPACES, "bash", str(_HERE / "node.sh"), node]


class First:
    """The first process, which runs first.sh. The daemons' output goes to ``log/NAME.out`` below `directory`.

    Parameters
    ----------
    environment
        Variables of the daemons in addition to those of this process.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [*_NAMESPACES, "bash", str(_HERE / "first.sh"), str(directory)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is sent to the Python process, which then ends the cluster
        )
        if not self._answer():
            raise UserError("the Slurm cluster's first process did not start")

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a daemon."""
        self._do("start", name, command)

    def alive(self, name: str) -> bool:
        """Return whether a daemon is still running."""
        return self._tell("alive", name)

    def stop(self, name: str) -> None:
        """End a daemon as an administrator does, and wait until it has ended."""
        self._do("stop", name)

    def crash(self, node: str) -> None:
        """Kill all processes of a node at once."""
        self._do("crash", node)

    def end(self) -> None:
        """End everything."""
        with self._process:
            try:
                self._process.communicate(timeout=_ANSWER)  # closes its stdin
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _do(self, verb: str, name: str, command: Sequence[str] = ()) -> None:
        if not self._tell(verb, name, command):
            raise UserError(f"the Slurm cluster: cannot {verb} {name}")

    def _tell(self, verb: str, name: str, command: Sequence[str] = ()) -> bool:
        assert self._process.stdin
        self._process.stdin.write(f"{verb} {name} {shlex.join(command)}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> bool:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], _ANSWER)[0]:
            raise UserError(f"the Slurm cluster's first process did not answer in {_ANSWER:.0f} s")
        return self._process.stdout.readline() == "0\n"
