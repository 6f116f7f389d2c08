"""Option `--tiny`, with which tests run a benchmark with the same entry point and output but fewer measurements."""

import argparse
from typing import Any


def parse(parser: argparse.ArgumentParser, **tiny: Any) -> argparse.Namespace:
    """Parser with an option ``--tiny`` that replaces the defaults of other options."""
    parser.add_argument("--tiny", action="store_true", help="measure next to nothing, to see that it works")
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**tiny)
    return parser.parse_args()
