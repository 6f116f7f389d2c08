"""Tests of figures of synchronization methods: correct markers, and texts that do not overlap."""

import itertools
from typing import Any

import pytest
from planted_ways import Run, planted
from test_layout import _overlap, texts

from hpcbench.report.plots import OF_SUBMISSION

PIPELINES = ["1f1b", "gpipe", "pipedream", "pipedream-2bw"]


def study() -> tuple[Any, Any]:
    """Return four pipelines with two schemes each. One method never reaches the target loss."""
    runs = [
        Run(
            {"train.schedule": schedule, "layout.pp": 4},
            repeat=repeat,
            scheme=scheme,
            seconds=1.0 + 0.1 * (repeat + k),
            valid={2: 3.0, 4: 2.0 + (schedule == "pipedream-2bw" and scheme != "baseline")},
            ages=[{"0": 2, str(k): 6}] if schedule.startswith("pipedream") else (),
        )
        for k, schedule in enumerate(PIPELINES)
        for repeat in (1, 2, 3)
        for scheme in ("baseline", "a-scheme-with-a-long-name-" + "x" * 40)
    ]
    return planted(runs, margin=0.01)


@pytest.mark.parametrize("name", ["time-to-loss", "staleness"])
def test_all_text_is_whole_and_free(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = OF_SUBMISSION[name](*study())
    assert figure is not None
    fig, boxes = texts(figure, monkeypatch)
    assert fig.get_size_inches()[0] == 3.4 and len(boxes) > 4
    for label, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= fig.bbox.x1 + 1 and box.y1 <= fig.bbox.y1 + 1, label
    for (first, a), (other, b) in itertools.combinations(boxes, 2):
        assert _overlap(a, b) <= 1.5, f"{first!r} covers {other!r}"


def test_bars_are_the_parts_of_the_gradients(draw: Any) -> None:
    drawn = draw(OF_SUBMISSION["staleness"](*study()))
    heights = sorted(round(bar.get_height()) for bar in drawn.axes[0].patches if bar.get_height())
    assert heights == [25, 25, 75, 75]
    assert [axes.get_title(loc="left").split("\n")[0] for axes in drawn.axes] == ["pipedream", "pipedream-2bw"]


def test_what_never_reached_the_loss_is_told_in_words(draw: Any) -> None:
    (axes,) = draw(OF_SUBMISSION["time-to-loss"](*study())).axes
    assert [text.get_text() for text in axes.texts] == ["not reached"]
    assert len(axes.get_yticks()) == 2 * (len(PIPELINES) - 1)


def test_a_study_in_which_all_wait_has_none() -> None:
    plain = planted([Run({"train.schedule": "1f1b", "layout.pp": 4})])
    assert [OF_SUBMISSION[name](*plain) for name in ("time-to-loss", "staleness")] == [None, None]
