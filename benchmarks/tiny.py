"""The form of a benchmark that tests run: the same entry and the same printing, with less to measure."""

import argparse
from typing import Any


def parse(parser: argparse.ArgumentParser, **tiny: Any) -> argparse.Namespace:
    """Options of the command line, with an option ``--tiny`` that gives others these defaults instead of their own."""
    parser.add_argument("--tiny", action="store_true", help="measure next to nothing, to see that it works")
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**tiny)
    return parser.parse_args()
