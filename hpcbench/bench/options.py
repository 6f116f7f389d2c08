"""Option checks that all measurements share. The checks run before a measurement, so that no results are lost."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.present.results import check_output, resolve_suffix

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Reject a value that is not one of the choices."""
    if value not in choices:
        close = difflib.get_close_matches(value, choices, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UserError(f"{option} {value}: unknown value: use one of {', '.join(choices)}{hint}")


def check_repeats(value: int) -> None:
    """Reject a number of turns below 1."""
    if value < 1:
        raise UserError(f"--repeats {value}: must be at least 1")


def check_codecs(names: Sequence[str]) -> None:
    """Reject unknown codecs."""
    try:
        from hpcbench.codecs.registry import get_codec
    except ModuleNotFoundError as error:
        raise UserError(f"bench: needs {error.name}. Install it with `pip install {error.name}`") from None
    for name in names:
        try:
            get_codec(name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(str(error) if name in str(error) else f"codec {name}: {error}") from None


def parse_size(option: str, text: str) -> int:
    """Parse a size in bytes: ``4096``, ``64K``, ``256M`` or ``1G``, with binary multiples as in other benchmarks."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise UserError(f"{option} {text}: not a size. Write bytes, or 64K, 256M, 1G")
    return int(match[1]) * _UNITS[match[2]]


def list_sizes(least: int, most: int) -> list[int]:
    """List sizes from `least` to `most` by factors of four."""
    sizes = []
    while least <= most:
        sizes.append(least)
        least *= 4
    return sizes


def format_size(nbytes: int) -> str:
    """Format a size in the form ``64K``, which `parse_size` reads."""
    for unit in ("g", "m", "k"):
        if nbytes % _UNITS[unit] == 0 and nbytes:
            return f"{nbytes // _UNITS[unit]}{unit.upper()}"
    return str(nbytes)


def check_outputs(outputs: Sequence[Path], plots: Path | None = None, *, figures: bool = True) -> None:
    """Reject output files to which results could not be written after the measurement.

    Parameters
    ----------
    outputs
        Files for results.
    plots
        Directory for figures.
    figures
        Whether the results contain figures, which an HTML page includes.
    """
    for path in outputs:
        check_output("--output", path)
        if resolve_suffix(path) == "html" and figures:
            need_matplotlib(f"--output {path}")
    if plots is not None:
        need_matplotlib("--plots")
