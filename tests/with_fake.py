"""Program that runs a command with a fake scheduler first on PATH: ``python tests/with_fake.py lsf -- COMMAND``.

After the command, the program waits for the remaining jobs, and then stops the fake and all its processes.
"""

import argparse
import subprocess
import sys
from typing import Any

from fakes import Fake, FakeFlux, FakeLSF
from fakes.sites import read_options
from fakes.state import ENDED

from hpcbench.errors import UserError


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status. Invalid arguments return 2."""
    command_line = sys.argv[1:] if argv is None else argv
    command = command_line[command_line.index("--") + 1 :] if "--" in command_line else []
    reader = argparse.ArgumentParser(
        description="Run a command with the fake of a scheduler first on PATH. It runs jobs for real on this machine.",
        usage="%(prog)s lsf|flux [--site FILE] [--flavour F] [--nodes N] [--minute S] -- COMMAND...",
    )
    reader.add_argument("system", choices=["lsf", "flux"])
    reader.add_argument("--site", help="site file: its nodes and queues are pretended")
    reader.add_argument("--flavour", help="of LSF: csm, lsf, old or lsf-like")
    reader.add_argument("--nodes", type=int, default=4, help="pretended compute nodes")
    reader.add_argument("--minute", type=float, default=60.0, help="seconds that a minute of the scheduler lasts")
    arguments = reader.parse_args(command_line[: command_line.index("--")] if "--" in command_line else command_line)
    if not command:
        reader.error("give a command after --")
    try:
        return _run(_fake(arguments), command)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def _fake(arguments: argparse.Namespace) -> Fake:
    options: dict[str, Any] = {"nodes": arguments.nodes, "minute": arguments.minute}
    if arguments.site:
        options |= read_options(arguments.site, arguments.system)
    if arguments.flavour:
        options["flavour"] = arguments.flavour
    return FakeLSF(**options) if arguments.system == "lsf" else FakeFlux(**options)


def _run(fake: Fake, command: list[str]) -> int:
    with fake:
        try:
            status = subprocess.run(command, env=fake.environment).returncode
        except OSError as error:
            raise UserError(f"{command[0]}: {error.strerror}") from None
        left = [job for job in fake.jobs if job.state not in ENDED]
        if left:
            count = f"{len(left)} job{'s' if len(left) > 1 else ''}"
            print(f"hpcbench's fake of {fake.system}: {count} still to end; Ctrl-C ends them now", file=sys.stderr)
            try:
                fake.wait(seconds=float("inf"))
            except KeyboardInterrupt:
                return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
