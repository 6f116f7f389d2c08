"""Options of flux batch, alloc and run, and Flux's durations.

Facts: flux-core, flux-batch(1), flux-run(1); Flux RFC 23.
"""

import argparse
import re
from typing import NoReturn

from fakes.programs import RefusedError
from fakes.signals import signal_number

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are printed as the program's own."""

    def error(self, message: str) -> NoReturn:
        """Refuse the call in the program's words."""
        raise RefusedError(f"usage: {self.prog.replace('-', ' ', 1)} [OPTIONS...]\n{self.prog}: error: {message}", 2)


def parser(command: str) -> Parser:
    """The parser of the options of ``batch``, ``alloc`` or ``run``."""
    found = Parser(prog=f"flux-{command}", add_help=False)
    unit = "task" if command == "run" else "slot"
    found.add_argument("-N", "--nodes", type=int)
    found.add_argument("-n", f"--n{unit}s", dest="count", type=int)
    found.add_argument("-c", f"--cores-per-{unit}", dest="cores_each", type=int)
    found.add_argument("-g", f"--gpus-per-{unit}", dest="gpus_each", type=int)
    found.add_argument("-x", "--exclusive", action="store_true")
    found.add_argument("-t", "--time-limit")
    found.add_argument("-q", "--queue")
    found.add_argument("-B", "--bank")
    found.add_argument("--job-name")
    found.add_argument("--cwd")
    found.add_argument("--output")
    found.add_argument("--error")
    found.add_argument("--signal")
    found.add_argument("--urgency")
    for name in ("-o --setopt", "-S --setattr", "--dependency", "--env", "--env-remove", "--requires", "--flags"):
        found.add_argument(*name.split(), action="append", default=[])
    if command == "run":
        found.add_argument("--tasks-per-node", type=int)
        found.add_argument("--tasks-per-core", type=int)
        found.add_argument("--gpus-per-node", type=int)
        found.add_argument("--cores", type=int)
        found.add_argument("-l", "--label-io", action="store_true")
        found.add_argument("-u", "--unbuffered", action="store_true")
        found.add_argument("-v", "--verbose", action="count")
        found.add_argument("--input")
    else:
        found.add_argument("--wrap", action="store_true")
        found.add_argument("--conf", action="append")
        found.add_argument("--broker-opts", action="append")
    found.add_argument("command", nargs=argparse.REMAINDER)
    return found


def seconds(text: str, bare: float = 1.0) -> float:
    """A duration such as ``90s`` or ``1.5h``; `bare` is the unit of a number without one.

    Raises
    ------
    ValueError
        The text has another form. Flux does not know ``hh:mm:ss``.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?", text)
    if not match:
        raise ValueError("invalid Flux standard duration")
    return float(match[1]) * (_UNITS[match[2]] if match[2] else bare)


def warning(text: str) -> tuple[float, int]:
    """The seconds before the limit and the signal in ``--signal=USR1@2m``."""
    name, _, ahead = text.partition("@")
    return seconds(ahead) if ahead else 60.0, signal_number(name or "USR1")
