"""Launch of a program with the interception settings in its environment, and collection of the counts of its ranks."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpcbench.contract.interpose import VARIABLE, Interposition
from hpcbench.contract.process_changes import split_arguments
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.train.process_start import add_preload, write_setup_script


@dataclass(frozen=True)
class Ended:
    """Result of a completed program."""

    status: int
    """Exit status as reported by a shell."""
    ranks: list[dict[str, Any]]
    """Counts of each rank, in rank order."""

    @property
    def world(self) -> int:
        """Number of ranks of the program."""
        return max((int(rank["world"]) for rank in self.ranks), default=0)


def environment(settings: Interposition, before: Mapping[str, str]) -> dict[str, str]:
    """Return the program's environment, with the settings and the path that lets torch find the kernels."""
    spec = find_spec("hpcbench")
    assert spec is not None and spec.origin is not None
    start = Path(spec.origin).parent / "programs" / "start"
    paths = [str(start), *filter(None, [before.get("PYTHONPATH")])]
    return {**before, VARIABLE: settings.model_dump_json(), "PYTHONPATH": os.pathsep.join(paths)}


def launch(command: Sequence[str], settings: Interposition) -> Ended:
    """Run the program with the scheme's arguments, variables, library and setup lines.

    Raises
    ------
    UserError
        The command does not exist, or the library to preload does not exist.
    """
    if not settings.scheme.setup and shutil.which(command[0]) is None:  # setup lines may define the command
        raise UserError(
            f"{command[0]}: no such command on PATH: activate the environment that contains it, or write its path. The "
            "whole command follows --, for example -- torchrun train.py"
        )
    out = Path(settings.out)
    for earlier in out.glob("rank-*.json"):
        earlier.unlink()
    scheme = settings.scheme
    full_command = [*command, *split_arguments(scheme.arguments)]
    if scheme.setup:
        full_command = ["bash", "-c", write_setup_script(scheme), "hpcbench", *full_command]
    variables = add_preload(scheme, {**os.environ, **scheme.environment})
    process = subprocess.Popen(full_command, env=environment(settings, variables))

    def pass_on(number: int, frame: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    reports = [data for path in out.glob("rank-*.json") if (data := read_json(path)) is not None]
    return Ended(128 - status if status < 0 else status, sorted(reports, key=lambda data: int(data["rank"])))
