"""Tests of the plot of gain against the swept key.

Markers are at the values of the findings, in the order of the key's values.
"""

from collections.abc import Callable
from typing import Any

import pytest
from planted_study import Run, planted

from hpcbench.report.plots.gain import find_swept_key, plot_gain


def study(*cells: tuple[dict[str, Any], float]) -> Any:
    """For each given gain, return a cell whose scheme has this gain."""
    return planted(
        [
            Run(scheme, k, seconds * (1 + 0.001 * ((k + i) % 3)), cell=cell)
            for cell, ratio in cells
            for k in (1, 2, 3)
            for i, (scheme, seconds) in enumerate((("baseline", 0.4), ("fast", 0.4 / ratio)))
        ]
    )


def test_gains_stand_over_their_numbers_whatever_the_order_of_the_study(draw: Callable[..., Any]) -> None:
    submission, cells = study(({"train.seq_len": 512}, 4.0), ({"train.seq_len": 64}, 1.5), ({"train.seq_len": 128}, 2))
    figure = plot_gain(submission, cells)
    assert figure is not None and figure.title == "Gain over train.seq_len"
    (axes,) = draw(figure).axes
    (line,) = [line for line in axes.lines if line.get_label() == "" or len(line.get_xdata()) == 3]
    speeds = {cell.values["train.seq_len"]: cell.row("fast").speed for cell in cells}
    assert list(line.get_xdata()) == [64, 128, 512]
    assert list(line.get_ydata()) == [speeds[x].estimate for x in (64, 128, 512)]
    assert list(line.get_ydata()) == pytest.approx([1.5, 2, 4], rel=0.01)
    bars = [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2 and len(set(line.get_xdata())) == 1]
    assert [list(bar) for bar in bars] == [[speeds[x].low, speeds[x].high] for x in (64, 128, 512)]
    assert axes.get_xscale() == "log"


def test_other_keys_make_lines_of_their_own(draw: Callable[..., Any]) -> None:
    cells = [({"nodes": n, "layout.context": context}, 1.0 + n) for n in (1, 2) for context in ("ring", "ulysses")]
    submission, compared = study(*cells)
    (axes,) = draw(plot_gain(submission, compared)).axes
    labels = [line.get_label() for line in axes.lines if not line.get_label().startswith("_")]
    assert labels == ["layout.context ring", "layout.context ulysses"]


@pytest.mark.parametrize(
    "values",
    [
        ({"layout.context": "ring"}, {"layout.context": "ulysses"}),
        ({"train.overlap": True}, {"train.overlap": False}),
        ({"train.micro_batch": 4}, {"train.micro_batch": "auto"}),
        ({"nodes": 2},),
    ],
)
def test_without_swept_numbers_there_is_no_figure(values: tuple[dict[str, Any], ...]) -> None:
    submission, cells = study(*[(value, 2.0) for value in values])
    assert find_swept_key(cells) is None
    assert plot_gain(submission, cells) is None
