"""Start of a rank whose scheme uses setup lines or a preloaded library.

    python -m hpcbench.train.process_start RUN.json

The process replaces itself with exec and therefore keeps the variables and pipes of the launcher. First, Bash executes
the setup lines. Then this module starts again and executes `hpcbench.train` with the scheme's library in LD_PRELOAD.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.contract.run import load
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError

SET_UP = "HPCBENCH_SET_UP"
"""Environment variable with the name of the scheme whose setup lines have been executed."""


def write_setup_script(scheme: NamedScheme) -> str:
    """Return a Bash script that executes the setup lines and then the command given as arguments.

    If a line fails, the script prints a message and exits with status 2.
    """
    script = []
    for line in scheme.setup:
        message = shlex.join(["printf", "hpcbench: scheme %s: setup: %s: exit status %d\\n", scheme.name, line])
        script.append(f'{{ {line}\n}} || {{ {message} "$?" >&2; exit 2; }}')
    return "\n".join([*script, 'exec "$@"'])


def execute_setup(scheme: NamedScheme, command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Replace this process with Bash, which executes the setup lines and then `command`.

    The call is a no-op if the scheme has no setup lines or if they have already been executed.

    Parameters
    ----------
    command
        Command that restarts this process.
    variables
        Environment of this process.

    Raises
    ------
    UserError
        Bash is not installed on this node.
    """
    if not scheme.setup or variables.get(SET_UP) == scheme.name:
        return
    try:
        os.execvpe(
            "bash",
            ["bash", "-c", write_setup_script(scheme), "hpcbench", *command],
            {**variables, SET_UP: scheme.name},
        )
    except OSError as error:
        raise UserError(f"bash: {error.strerror}: install bash, because scheme {scheme.name} has setup lines") from None


def add_preload(scheme: NamedScheme, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the scheme's library at the start of LD_PRELOAD.

    Raises
    ------
    UserError
        The library does not exist on this node.
    """
    if scheme.preload is None:
        return dict(variables)
    if not Path(scheme.preload).is_file():
        raise UserError(
            f"scheme {scheme.name}: preload: {scheme.preload} does not exist on {os.uname().nodename}: correct the "
            "path, or install the library on a file system of the compute nodes"
        )
    libraries = [scheme.preload, *filter(None, [variables.get("LD_PRELOAD")])]
    return {**variables, "LD_PRELOAD": ":".join(libraries)}


def main(arguments: list[str]) -> int:
    """Replace this process with the worker of a run. An exit status is returned only on failure."""
    try:
        if len(arguments) != 1:
            raise UserError("usage: python -m hpcbench.train.process_start RUN.json")
        run, _ = load(Path(arguments[0]))
        execute_setup(run.scheme, [sys.executable, "-m", "hpcbench.train.process_start", *arguments], os.environ)
        variables = add_preload(run.scheme, os.environ)
        os.execve(sys.executable, [sys.executable, "-m", "hpcbench.train", *arguments], variables)
    except UserError as error:
        print(f"hpcbench.train: {error}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
