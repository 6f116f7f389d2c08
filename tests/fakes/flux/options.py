"""Options of `flux batch`, `flux alloc` and `flux run`, and Flux's durations.

Sources: flux-core, flux-batch(1), flux-run(1); Flux RFC 23.
"""

import argparse
import re
from typing import NoReturn

from fakes.programs import RefusedError
from fakes.signals import signal_number

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Parser(argparse.ArgumentParser):
    """A parser that prints errors in the format of the real program."""

    def error(self, message: str) -> NoReturn:
        """Refuse the call with the program's message."""
        raise RefusedError(f"usage: {self.prog.replace('-', ' ', 1)} [OPTIONS...]\n{self.prog}: error: {message}", 2)


def make_parser(command: str) -> Parser:
    """Return the option parser of ``batch``, ``alloc`` or ``run``."""
    arguments_parser = Parser(prog=f"flux-{command}", add_help=False)
    unit = "task" if command == "run" else "slot"
    arguments_parser.add_argument("-N", "--nodes", type=int)
    arguments_parser.add_argument("-n", f"--n{unit}s", dest="count", type=int)
    arguments_parser.add_argument("-c", f"--cores-per-{unit}", dest="cores_each", type=int)
    arguments_parser.add_argument("-g", f"--gpus-per-{unit}", dest="gpus_each", type=int)
    arguments_parser.add_argument("-x", "--exclusive", action="store_true")
    arguments_parser.add_argument("-t", "--time-limit")
    arguments_parser.add_argument("-q", "--queue")
    arguments_parser.add_argument("-B", "--bank")
    arguments_parser.add_argument("--job-name")
    arguments_parser.add_argument("--cwd")
    arguments_parser.add_argument("--output")
    arguments_parser.add_argument("--error")
    arguments_parser.add_argument("--signal")
    arguments_parser.add_argument("--urgency")
    for name in ("-o --setopt", "-S --setattr", "--dependency", "--env", "--env-remove", "--requires", "--flags"):
        arguments_parser.add_argument(*name.split(), action="append", default=[])
    if command == "run":
        arguments_parser.add_argument("--tasks-per-node", type=int)
        arguments_parser.add_argument("--tasks-per-core", type=int)
        arguments_parser.add_argument("--gpus-per-node", type=int)
        arguments_parser.add_argument("--cores", type=int)
        arguments_parser.add_argument("-l", "--label-io", action="store_true")
        arguments_parser.add_argument("-u", "--unbuffered", action="store_true")
        arguments_parser.add_argument("-v", "--verbose", action="count")
        arguments_parser.add_argument("--input")
    else:
        arguments_parser.add_argument("--wrap", action="store_true")
        arguments_parser.add_argument("--conf", action="append")
        arguments_parser.add_argument("--broker-opts", action="append")
    arguments_parser.add_argument("command", nargs=argparse.REMAINDER)
    return arguments_parser


def parse_seconds(text: str, bare: float = 1.0) -> float:
    """Return a duration such as ``90s`` or ``1.5h`` in seconds. `bare` is the unit of a number without a unit.

    Raises
    ------
    ValueError
        The text has a different form. Flux does not accept ``hh:mm:ss``.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?", text)
    if not match:
        raise ValueError("invalid Flux standard duration")
    return float(match[1]) * (_UNITS[match[2]] if match[2] else bare)


def parse_warning(text: str) -> tuple[float, int]:
    """Parse ``--signal=USR1@2m``, and return the seconds before the limit and the signal."""
    name, _, ahead = text.partition("@")
    return parse_seconds(ahead) if ahead else 60.0, signal_number(name or "USR1")
