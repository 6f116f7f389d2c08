"""Start of a rank under a scheme that has setup lines or a preloaded library, before anything else is imported.

The process replaces itself, so that the launcher's variables and pipes stay with it: Bash runs the setup lines and then
starts the same Python command again, with LD_PRELOAD where the scheme wants it.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError

SET_UP = "HPCBENCH_SET_UP"
"""Variable that marks a process in which the scheme's setup lines have run; it holds the name of the scheme."""


def write_setup_script(scheme: NamedScheme) -> str:
    """Return a Bash script that runs the setup lines, each of which must succeed, and then its arguments."""
    lines = []
    for line in scheme.setup:
        complaint = f"hpcbench: scheme {scheme.name}: setup: exit status $?: {line}"
        text = complaint.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
        text = text.replace("$", "\\$").replace("exit status \\$?", "exit status $?")
        lines.append(f'{{ {line}\n}} || {{ echo "{text}" >&2; exit 2; }}')
    return "\n".join([*lines, 'exec "$@"'])


def preload_library(scheme: NamedScheme, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the scheme's library is loaded first.

    Raises
    ------
    UserError
        The library does not exist on this node.
    """
    if scheme.preload is None:
        return dict(variables)
    if not Path(scheme.preload).is_file():
        raise UserError(
            f"{os.uname().nodename}: scheme {scheme.name}: preload: {scheme.preload}: no such file on this node: "
            "correct the path, or install the library where compute nodes see it"
        )
    libraries = [scheme.preload, *filter(None, [variables.get("LD_PRELOAD")])]
    return {**variables, "LD_PRELOAD": ":".join(libraries)}


def run_setup(scheme: NamedScheme, command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Replace this process by Bash, which runs the setup lines and then the command; return if they have run already.

    Parameters
    ----------
    command
        The command of this process, which then starts again.

    Raises
    ------
    UserError
        There is no Bash.
    """
    if not scheme.setup or variables.get(SET_UP) == scheme.name:
        return
    sys.stdout.flush()
    try:
        os.execvpe(
            "bash",
            ["bash", "-c", write_setup_script(scheme), "hpcbench", *command],
            {**variables, SET_UP: scheme.name},
        )
    except OSError as error:
        raise UserError(f"bash: {error.strerror}: scheme {scheme.name} has setup lines, which Bash runs") from None


def hash_file(path: str) -> str | None:
    """Return the SHA-256 of a file in hexadecimal; None if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


