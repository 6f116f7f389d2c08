"""Options that several measurements share.

They are checked before a measurement, so that no result is lost after it.
"""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.present.results import resolve_format

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def choice(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not among the known ones."""
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise UserError(f"{option} {value}: not known: use one of {', '.join(known)}{hint}")


def repeats(value: int) -> None:
    """Refuse a number of turns that measures nothing."""
    if value < 1:
        raise UserError(f"--repeats {value}: must be at least 1")


def codecs(names: Sequence[str]) -> None:
    """Refuse a codec that does not exist."""
    try:
        from hpcbench.codecs.registry import get_codec
    except ModuleNotFoundError as error:
        raise UserError(f"bench: needs {error.name}: pip install {error.name}") from None
    for name in names:
        try:
            get_codec(name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(str(error) if name in str(error) else f"codec {name}: {error}") from None


def size(option: str, text: str) -> int:
    """Bytes of ``4096``, ``64K``, ``256M`` or ``1G``, with binary multiples as in other benchmarks."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise UserError(f"{option} {text}: is no size: write bytes, or 64K, 256M, 1G")
    return int(match[1]) * _UNITS[match[2]]


def sizes(least: int, most: int) -> list[int]:
    """Sizes from `least` to `most` by factors of four."""
    found = []
    while least <= most:
        found.append(least)
        least *= 4
    return found


def spelled(nbytes: int) -> str:
    """A size in the form ``64K``, which `size` reads."""
    for unit in ("g", "m", "k"):
        if nbytes % _UNITS[unit] == 0 and nbytes:
            return f"{nbytes // _UNITS[unit]}{unit.upper()}"
    return str(nbytes)


def check_output(option: str, path: Path | None) -> None:
    """Refuse a file that could not be written after the measurement."""
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path}: is a directory: name a file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: {path.parent} is no directory: make it first")


def check_outputs(outputs: Sequence[Path], plots: Path | None = None, *, figures: bool = True) -> None:
    """Refuse files for results that could not be written after the measurement.

    Parameters
    ----------
    outputs
        Files for results.
    plots
        Directory for figures.
    figures
        Whether the results have figures, which are part of a page.
    """
    for path in outputs:
        check_output("--output", path)
        if resolve_format(None, path) == "html" and figures:
            need_matplotlib(f"--output {path}")
    if plots is not None:
        need_matplotlib("--plots")
