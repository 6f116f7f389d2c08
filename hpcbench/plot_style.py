"""Style of all plots, for paper and screen, and functions that write plot files.

matplotlib is imported inside functions, so that it is required only for plots.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.4
"""Width in inches of a column in a two-column layout.

Plots are drawn at this size, so that the font size is correct in print.
"""
INK = "#1a1b1c"
"""Color of text, axes, and the baseline. No other element uses this color, so a web page can replace it."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe-Ito colors, which color-blind readers can distinguish.

Markers, dashes, and hatches are distinguishable in grayscale.
"""
MARKS = ("o", "s", "D", "^", "v", "P")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\\\\\")
DPI = 200
"""Image resolution in dots per inch."""
SMALL = 6.5
"""Smallest font size, in points."""
SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.titlepad": 3,
    "axes.labelpad": 3,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "axes.titlecolor": INK,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color", "hatch.color"),
        INK,
    ),
    # Names come from the study, so a dollar sign must not start a formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
}


def need_matplotlib(option: str) -> None:
    """Raise an error early if plots cannot be drawn.

    Raises
    ------
    UserError
        matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UserError(f"{option}: needs matplotlib: pip install matplotlib") from None


@contextmanager
def styled(salt: str = "hpcbench") -> Iterator[None]:
    """Draw in this style, regardless of the user's matplotlib settings.

    Parameters
    ----------
    salt
        Salt for ids inside SVG files. The salt makes ids reproducible, and different for each plot on a page.
    """
    import matplotlib.style

    with matplotlib.style.context({**SETTINGS, "svg.hashsalt": salt}, after_reset=True):
        yield


def save(figure: "Figure", path: Path, option: str = "--plot") -> None:
    """Write a plot to a ``.png`` or ``.svg`` file.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    try:
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be written: {error.strerror}") from None


def grid(axes: "Axes", axis: Any = "both") -> None:
    """Draw faint grid lines behind the data, and no minor ticks."""
    axes.grid(axis=axis)
    axes.minorticks_off()


def power(exponent: int) -> str:
    """Format a power of ten as text, such as ``10⁻³``. matplotlib would use a formula."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
