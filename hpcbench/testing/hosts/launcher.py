"""Replacement for mpiexec in a site file, which creates virtual hosts and starts the ranks on them.

    hpcbench-virtual-hosts -n RANKS [-ppn RANKS_A_HOST] [--rate 100mbit] [--delay-us 50] COMMAND...
    hpcbench-virtual-hosts --can

The hosts exist while the command runs. With --can, the exit status is 0 if this machine supports virtual hosts.
Otherwise, the exit status is 1, and the reason and remedy are printed on one line.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hpcbench-virtual-hosts``. Return the exit status of the command, if it was started."""
    options = _parser().parse_args(arguments)
    try:
        if options.can:
            reason = why_not()
            print(reason or "virtual hosts work here")
            return int(reason is not None)
        if options.n is None or not options.command:
            raise UserError("give -n RANKS and a command, or --can")
        each = options.ppn or options.n
        with Hosts(-(-options.n // each), rate=options.rate, delay_us=options.delay_us) as hosts:
            return hosts.launch(options.command, ranks=options.n, ranks_per_host=each, environment=os.environ)
    except UserError as error:
        print(f"hpcbench-virtual-hosts: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hpcbench-virtual-hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--can", action="store_true", help="check whether virtual hosts work here, and start nothing")
    parser.add_argument("-n", type=_count, metavar="RANKS", help="ranks in all")
    parser.add_argument("-ppn", type=_count, metavar="RANKS", help="ranks per host; by default, all ranks on one host")
    parser.add_argument(
        "-bind-to",
        choices=["none"],
        help="ignored, because the hosts share this machine's cores; accepted for compatibility with mpiexec",
    )
    parser.add_argument("--rate", metavar="RATE", help="rate limit of each link, such as 100mbit; by default, no limit")
    parser.add_argument("--delay-us", type=int, default=0, metavar="MICROSECONDS", help="delay between hosts")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...", help="program of each rank")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
