"""Plots what messages are like, by channel and step: rank, bits a lossless codec needs, and error of codecs.

It needs matplotlib (extra ``report``).
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.bench.messages.anatomy import Anatomy, Between, Findings, Row
from hpcbench.bench.messages.table import FIGURES, OF_MATRICES, Names, run_names
from hpcbench.bench.messages.verdict import LOW
from hpcbench.contract.text import printable
from hpcbench.plot_style import COLOURS, INK, MARKS, grid, power, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _PANEL, _NAMES = 0.34, 1.7, 1.3
"""Inches of a channel, of a panel, and of the channels' names."""
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

    several = run_names(findings)
    lines = list(dict.fromkeys(_line(row, several) for row in findings.rows))
    steps = sorted({row.key.step for row in findings.rows})
    codecs = [name for name in _ERRORS if any(name in m.coded for row in findings.rows for m in row.messages)]
    with styled():
        figure = Figure(figsize=(_PANEL * 3 + _NAMES, 1.1 + _ROW * len(lines)), layout="constrained")
        figure.suptitle(printable(title))
        ranks, bits, errors = figure.subplots(1, 3, sharey=True)
        ranks.set_yticks(range(len(lines)), lines)
        ranks.set_ylim(len(lines) - 0.5, -0.5)
        for axes in (ranks, bits, errors):
            grid(axes, "x")
        ranks.set_xlabel(f"effective rank beside\nGaussian (dotted: {LOW:g})")
        ranks.axvline(LOW, color=INK, linewidth=0.8, linestyle=":")
        ranks.set_xlim(0, 1.1)
        bits.set_xlabel("bits a value,\nlossless bound")
        shapes = [f"{shape} {name}" for shape, name in zip(("filled", "hollow"), codecs, strict=False)]
        errors.set_xlabel("\n".join(["relative RMS error", f"({', '.join(shapes)})"]))
        errors.set_xscale("log")
        found = [1e-3, 1e-2]
        for row in findings.rows:
            k = steps.index(row.key.step)
            height = lines.index(_line(row, several)) + _aside(k, len(steps))
            _mark(ranks, _rank(row), height, k)
            _mark(bits, row.between(FIGURES["lossless_bits"]), height, k)
            for codec in codecs:
                error = row.between(partial(_error, codec))
                _mark(errors, error, height, k, hollow=codec != codecs[0])
                found += [error.least, error.most] if error else []
        bits.set_xlim(left=0)
        first, last = (math.floor(math.log10(min(found))), math.ceil(math.log10(max(found))))
        errors.set_xlim(10.0**first, 10.0**last)
        errors.set_xticks([10.0**n for n in range(first, last + 1)], [power(n) for n in range(first, last + 1)])
        errors.minorticks_off()
        for k, step in enumerate(steps):
            bits.plot([], [], linestyle="", color=_colour(k), marker=_marker(k), label=f"step {step}")
        figure.legend(loc="outside lower center", ncols=min(len(steps), 6))
        save(figure, path)


def _error(codec: str, message: Anatomy) -> float | None:
    """Error of a codec that a logarithmic axis can show."""
    one = message.coded.get(codec)
    return one.relative_rmse if one and 0 < one.relative_rmse < math.inf else None


def _line(row: Row, several: Names) -> str:
    words = f"{row.key.channel.replace('FORWARD', 'fwd').replace('BACKWARD', 'bwd').replace('STEP', 'step')}"
    words += f", {row.key.operation}"
    return printable(f"{several[row.key.study, row.key.scheme]}: {words}" if several else words, 60)


def _rank(row: Row) -> Between | None:
    found: Sequence[float] = [OF_MATRICES["effective_rank_beside_gaussian"](one) for one in row.spectra]
    return Between.of(found) if found else None


def _aside(k: int, n: int) -> float:
    """Steps of a channel stand below each other within its row."""
    return 0.0 if n == 1 else 0.5 * (k / (n - 1) - 0.5)


def _mark(axes: "Axes", between: Between | None, height: float, k: int, *, hollow: bool = False) -> None:
    if between is None:
        return
    fill = "white" if hollow else _colour(k)
    axes.plot([between.least, between.most], [height, height], color=_colour(k), linewidth=1.0)
    axes.plot([between.median], [height], color=_colour(k), marker=_marker(k), markersize=3.5, markerfacecolor=fill)


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _marker(k: int) -> str:
    return MARKS[k % len(MARKS)]
