"""How all plots look, on paper and on a screen: sizes, colours, marks; and how they are written.

matplotlib is imported inside functions: who plots nothing needs none.
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
"""Inches: a column of a two-column page. Plots are drawn at this size, so that their type is as large in print."""
INK = "#1a1b1c"
"""Text, axes and the baseline; nothing else has this colour, so that a page can put its own in its place."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, told apart by colour-blind eyes; marks, dashes and hatches tell them apart in grey print."""
MARKS = ("o", "s", "D", "^", "v", "P")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\\\\\")
DPI = 200
"""Dots an inch of a picture."""
SMALL = 6.5
"""Points: the smallest type."""
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
    # Names are whatever a study says: a dollar sign in one is no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
}


def need_matplotlib(option: str) -> None:
    """Say at once that a plot cannot be drawn.

    Raises
    ------
    UserError
        matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UserError(f"{option}: needs matplotlib: pip install 'hpcbench[report]'") from None


@contextmanager
def styled(salt: str = "hpcbench") -> Iterator[None]:
    """Draw in this style, whatever the user's own settings of matplotlib are.

    Parameters
    ----------
    salt
        Of the names inside an SVG: the same at each writing, and its own where several stand on one page.
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
    """Faint lines behind what is drawn, and no marks between the numbers."""
    axes.grid(axis=axis)
    axes.minorticks_off()


def power(exponent: int) -> str:
    """A power of ten as people write it: ``10⁻³``; matplotlib's own way makes formulas of it."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
