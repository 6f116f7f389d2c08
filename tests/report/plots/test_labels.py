"""Tests of point labels. Each label is nearest to its own point, or connected to it by a line."""

import math
import random
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hpcbench.plot_labels import place_labels
from hpcbench.plot_style import styled


def place(points: list[tuple[str, float, float]]) -> tuple[Figure, Any]:
    with styled():
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.subplots()
        axes.plot([x for _, x, _ in points], [y for _, _, y in points], "o")
        place_labels(figure, [(axes, points)])
    return figure, axes


@pytest.mark.parametrize("seed", range(6))
def test_a_label_is_nearest_to_its_own_point_or_has_a_line_to_it(seed: int) -> None:
    """A figure with the points of sixteen codecs. Half of the points are close to each other."""
    noise = random.Random(seed)
    spots = [(noise.random(), noise.random()) for _ in range(8)] + [
        (0.5 + 0.08 * noise.random(), 0.5 + 0.15 * noise.random()) for _ in range(8)
    ]
    points = [(f"codec:{k} (1.{k})", x, y) for k, (x, y) in enumerate(spots)]
    figure, axes = place(points)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    places = {name: axes.transData.transform((x, y)) for name, x, y in points}
    assert len(axes.texts) == len(points)
    free = [text for text in axes.texts if text.arrow_patch is None]
    assert len(free) >= 4, "lines are for crowds"
    for text in free:
        box = text.get_window_extent(renderer)
        nearest = min(places, key=lambda name: distance(box, *places[name]))
        assert nearest == text.get_text()


def distance(box: Any, x: float, y: float) -> float:
    return math.hypot(max(box.x0 - x, x - box.x1, 0), max(box.y0 - y, y - box.y1, 0))
