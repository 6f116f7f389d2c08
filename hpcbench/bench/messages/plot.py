"""Plots what messages are like, by channel and step: rank, bits a lossless codec needs, and error of codecs.

It needs matplotlib (extra ``report``).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.bench.messages.anatomy import Between, Findings, Row
from hpcbench.bench.messages.table import FIGURES, OF_CODECS, OF_MATRICES
from hpcbench.bench.messages.verdict import LOW
from hpcbench.contract.text import printable
from hpcbench.plot_style import COLOURS, INK, MARKS, grid, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _PANEL = 0.34, 1.9
"""Inches of a channel, and of a panel."""
_ERRORS = ("int8:256", "zfp:8")
"""Codecs whose errors are compared, where they are among the measured ones: of one size."""


def draw(findings: Findings, title: str, path: Path) -> None:
    """Write the plot.

    Parameters
    ----------
    findings
        The figures.
    title
        Title above the plot.
    path
        A ``.png`` or ``.svg`` file.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    from matplotlib.figure import Figure

    several = len({row.key.scheme for row in findings.rows}) > 1
    lines = list(dict.fromkeys(_line(row, several) for row in findings.rows))
    steps = sorted({row.key.step for row in findings.rows})
    codecs = [name for name in _ERRORS if any(name in m.coded for row in findings.rows for m in row.messages)]
    with styled():
        figure = Figure(figsize=(_PANEL * (3 + bool(codecs)), 1.0 + _ROW * len(lines)), layout="constrained")
        figure.suptitle(printable(title))
        panels = figure.subplots(1, 2 + len(codecs), sharey=True, squeeze=False)[0]
        panels[0].set_yticks(range(len(lines)), lines)
        panels[0].set_ylim(len(lines) - 0.5, -0.5)
        for axes in panels:
            grid(axes, "x")
        panels[0].set_xlabel(f"effective rank / Gaussian\n(dotted: {LOW:g})")
        panels[0].axvline(LOW, color=INK, linewidth=0.8, linestyle=":")
        panels[0].set_xlim(0, 1.1)
        panels[1].set_xlabel("bits a value, lossless bound")
        for row in findings.rows:
            height = lines.index(_line(row, several)) + _aside(steps.index(row.key.step), len(steps))
            _mark(panels[0], _rank(row), height, steps.index(row.key.step))
            _mark(panels[1], row.between(FIGURES["lossless_bits"]), height, steps.index(row.key.step))
            for axes, codec in zip(panels[2:], codecs, strict=True):
                axes.set_xlabel(f"relative RMS error, {codec}")
                error = row.of_codec(codec, OF_CODECS["relative_rmse"])
                if error is not None and error.least > 0:
                    axes.set_xscale("log")
                    _mark(axes, error, height, steps.index(row.key.step))
        for k, step in enumerate(steps):
            panels[1].plot([], [], linestyle="", color=_colour(k), marker=_marker(k), label=f"step {step}")
        figure.legend(loc="outside lower center", ncols=min(len(steps), 6))
        save(figure, path)


def _line(row: Row, several: bool) -> str:
    words = f"{row.key.channel.replace('FORWARD', 'fwd').replace('BACKWARD', 'bwd').replace('STEP', 'step')}"
    words += f", {row.key.operation}"
    return printable(f"{row.key.scheme}: {words}" if several else words, 60)


def _rank(row: Row) -> Between | None:
    found: Sequence[float] = [OF_MATRICES["effective_rank_beside_gaussian"](one) for one in row.spectra]
    return Between.of(found) if found else None


def _aside(k: int, n: int) -> float:
    """Steps of a channel stand below each other within its row."""
    return 0.0 if n == 1 else 0.5 * (k / (n - 1) - 0.5)


def _mark(axes: "Axes", between: Between | None, height: float, k: int) -> None:
    if between is None:
        return
    axes.plot([between.least, between.most], [height, height], color=_colour(k), linewidth=1.0)
    axes.plot([between.median], [height], color=_colour(k), marker=_marker(k), markersize=3.5)


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _marker(k: int) -> str:
    return MARKS[k % len(MARKS)]
