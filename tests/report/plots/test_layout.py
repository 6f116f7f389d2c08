"""Tests that no text in a figure overlaps another text or is cut off, whatever the number and names of schemes."""

import itertools
import math
import random
import warnings
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from planted_study import Run, channel, planted

from hpcbench.plot_style import styled
from hpcbench.present.document import Figure
from hpcbench.present.figures import drawn, png
from hpcbench.report.plots import OF_CELL, OF_SUBMISSION

NAMES = [
    *("baseline", "identity", "naive-mpc", "naive-zfp8", "naive-zfp16", "mzhybrid", "zhybrid-16-8", "int8-feedback"),
    *("topk-1-percent-of-all-gradients-hierarchical", "sign-$x^2$\x1b[31m\x00", "W" * 60),
]
STUDIES = {
    "one scheme": (NAMES[:1], 1, [8]),
    "one pair": (NAMES[:2], 1, [8]),
    "ten schemes": (NAMES, 3, [8]),
    "four sizes": (["baseline", "naive-zfp8", "mzhybrid"], 2, [8, 16, 32, 1024]),
}


def figures(schemes: list[str], repeats: int, sizes: list[int]) -> list[Figure]:
    """Return all figures of a study with a run out of memory, a diverged run, and a scheme that never completed."""
    noise = random.Random(11)
    runs = []
    for k, scheme in enumerate(schemes):
        for repeat, ranks in itertools.product(range(1, repeats + 1), sizes):
            state = {("naive-zfp8", 2): "out of memory", ("naive-zfp16", 1): "nan", ("identity", 1): "timed out"}.get(
                (scheme, repeat), "completed" if scheme != "identity" or repeats == 1 else "failed"
            )
            state = state if repeats > 1 else "completed"
            offset = noise.gauss(0.02 * k, 0.01)
            runs.append(
                Run(
                    scheme,
                    repeat,
                    0.5 * noise.uniform(0.97, 1.03) / (1 + 0.05 * k),
                    lambda step, offset=offset: 2 + offset + 3 / step,  # type: ignore[misc]
                    {} if state != "completed" else {10: 2.3 + offset, 20: 2.15 + offset},
                    1 / (1 + 0.5 * k),
                    {"nodes": ranks // 8} if len(sizes) > 1 else {},
                    ranks,
                    state=state,
                    taken=20 if state == "completed" else 12,
                    channels=[
                        sent(dimension, phase, k) for dimension, phase in (("DP", "BACKWARD"), ("TP", "FORWARD"))
                    ],
                )
            )
    submission, cells = planted(runs)
    selected = [make(submission, cell) for cell in cells[:1] for make in OF_CELL.values()]
    selected += [make(submission, cells) for make in OF_SUBMISSION.values()]
    return [figure for figure in selected if figure is not None]


def sent(dimension: str, phase: str, k: int) -> dict[str, Any]:
    """Return traffic with four alternating codecs."""
    codec = k % 4
    times = {"encode_s": 1.0 * k, "decode_s": 0.5 * k, "transfer_s": 9.0, "exposed_s": 8.0, "hidden_s": 1 + 1.5 * k}
    error = math.ldexp(0.5, -3 * codec) if k else None
    sizes = {"message_bytes": 1000, "wire_bytes": 100 + 250 * codec}
    return channel(dimension, phase=phase, codec=f"codec:{codec}", sampled_error=error, **sizes, **times)


def texts(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[tuple[str, Bbox]]]:
    """Return the figure, and each drawn text with its box."""
    collected: list[Text] = []
    original = Text.draw

    def draw(self: Text, renderer: Any, *remainder: Any, **options: Any) -> None:
        collected.append(self)
        original(self, renderer, *remainder, **options)

    with styled(), monkeypatch.context() as patch:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(drawn(figure))
        patch.setattr(Text, "draw", draw)
        canvas.draw()
        boxes = [
            (text.get_text(), Text.get_window_extent(text, canvas.get_renderer()))
            for text in collected
            if text.get_text() and text.get_visible()
        ]
    return canvas.figure, boxes


@pytest.mark.parametrize("study", STUDIES)
def test_all_text_is_whole_and_free(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for figure in figures(*STUDIES[study]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fig, boxes = texts(figure, monkeypatch)
        assert len(boxes) > 4, figure.name
        width, height = fig.get_size_inches()
        assert width == 3.4 and height < 9.5, f"{figure.name} is {width} x {height} inches: no page holds it"
        for label, box in boxes:
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= fig.bbox.x1 + 1 and box.y1 <= fig.bbox.y1 + 1
            assert inside, f"{figure.name}: {label!r} is cut: {box} of {fig.bbox}"
        for (first, a), (other, b) in itertools.combinations(boxes, 2):
            assert _overlap(a, b) <= 1.5, f"{figure.name}: {first!r} covers {other!r}"


def test_the_name_nearest_to_a_mark_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemes of similar speed and loss, as in many studies. Lines connect distant names with their points."""
    seconds = {"identity": 0.49, "mzhybrid": 0.4, "naive-bf16": 0.43, "zhybrid-16-8": 0.25, "naive-int8": 0.27}
    losses = {scheme: 1e-5 * (k + 1) for k, scheme in enumerate(seconds)} | {"naive-zfp4": 0.3}
    seconds["naive-zfp4"] = 0.25
    runs = [Run("baseline", repeat, valid={20: 2.0}) for repeat in (1, 2)]
    runs += [
        Run(scheme, repeat, time, valid={20: 2.0 + losses[scheme]})
        for scheme, time in seconds.items()
        for repeat in (1, 2)
    ]
    submission, (cell,) = planted(runs)
    figure = OF_CELL["trade-off"](submission, cell)
    assert figure is not None
    fig, boxes = texts(figure, monkeypatch)
    names = [(label, box) for label, box in boxes if label in seconds]
    assert len(names) == len(seconds)
    assert {"margin: loss no worse", "baseline", "faster, loss no worse", "loss worse"} <= dict(boxes).keys()
    axes = fig.axes[0]
    assert axes.get_ylabel().endswith("logarithmic beyond the margin")
    connected = {text.get_text() for text in axes.texts if text.arrow_patch is not None}
    assert len(connected) < len(seconds)
    marks = {row.scheme: (row.speed.estimate, row.loss.estimate) for row in cell.rows if row.speed and row.loss}
    assert set(marks) == set(seconds)
    for scheme in set(marks) - connected:
        x, y = axes.transData.transform(marks[scheme])
        nearest = min(
            names, key=lambda item: math.hypot(_gap(x, item[1].x0, item[1].x1), _gap(y, item[1].y0, item[1].y1))
        )
        assert nearest[0] == scheme


def _gap(at: float, low: float, high: float) -> float:
    """Return the distance of a position from an interval."""
    return max(low - at, at - high, 0.0)


def _overlap(a: Bbox, b: Bbox) -> float:
    """Return the overlap of two boxes in pixels along the axis on which they overlap less."""
    return min(min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0))


@pytest.mark.parametrize("planted_value", ["loss", "validation", "seconds", "error", "exposed"])
def test_values_beyond_all_measure_are_no_error(planted_value: str) -> None:
    """A damaged log may contain the largest float, whose sums are infinite."""
    most = 1.7e308
    wild = sent("DP", "BACKWARD", 1)
    wild["sampled_error"] = most if planted_value == "error" else 0.1
    wild["exposed_s"] = most if planted_value == "exposed" else 8.0
    odd = Run(
        "odd",
        1,
        1e300 if planted_value == "seconds" else 0.5,
        (lambda step: most if step > 3 else 2.0) if planted_value == "loss" else (lambda step: 2.0),
        {20: most if planted_value == "validation" else 2.0},
        channels=[wild],
    )
    submission, cells = planted([Run("baseline", 1), Run("baseline", 2), odd, replace(odd, repeat=2)])
    for name in {
        "seconds": ("time-split", "loss-over-time"),
        "error": ("error-over-wire",),
        "exposed": ("time-split",),
    }.get(planted_value, ("loss-over-steps", "trade-off")):
        figure = OF_CELL[name](submission, cells[0])
        assert figure is None or png(figure).startswith(b"\x89PNG"), "either it can be drawn, or it says nothing"
