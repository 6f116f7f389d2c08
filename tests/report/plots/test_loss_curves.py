"""Tests of loss figures: lines, bands and markers match the numbers in the logs."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from planted_study import Run, planted

from hpcbench.report.plots.loss import plot_loss_over_steps, plot_loss_over_time

T_2 = 4.302652729911275
"""The 97.5 % quantile of Student's t with 2 degrees of freedom, from a printed table."""


def lines(axes: Any) -> dict[str, Any]:
    """Return the curves of a panel, by label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def marks(axes: Any, marker: str) -> list[tuple[float, float]]:
    """Return the positions of markers of one kind in a panel."""
    selected = [line for line in axes.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in selected for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def bands(axes: Any) -> list[dict[float, tuple[float, float]]]:
    """Return the ends of each band of a panel, by position."""
    collected = []
    for band in axes.collections:
        ends: dict[float, list[float]] = {}
        for x, y in band.get_paths()[0].vertices:
            ends.setdefault(float(x), []).append(float(y))
        collected.append({x: (min(ends_at_x), max(ends_at_x)) for x, ends_at_x in ends.items()})
    return collected


def shifted(by: float) -> Callable[[int], float]:
    return lambda step: 2.0 + 3.0 / step + by


def test_three_repeats_have_their_mean_and_students_interval(draw: Callable[..., Any]) -> None:
    offsets = (0.0, 0.1, 0.5)
    runs = [Run(s, r, loss=shifted(offsets[r - 1])) for s in ("baseline", "mzhybrid") for r in (1, 2, 3)]
    submission, (cell,) = planted(runs, steps=6)
    (axes,) = draw(plot_loss_over_steps(submission, cell)).axes
    curve = lines(axes)["scheme of the panel"]
    assert list(curve.get_xdata()) == [1, 2, 3, 4, 5, 6]
    assert list(curve.get_ydata()) == pytest.approx([2.2 + 3 / k for k in range(1, 7)], abs=1e-6)
    half = T_2 * math.sqrt(((0.2) ** 2 + 0.1**2 + 0.3**2) / 2) / math.sqrt(3)
    for band in bands(axes):
        assert band[4] == pytest.approx((2.95 - half, 2.95 + half), abs=1e-5)
    assert marks(axes, "o") == [pytest.approx((6, 2.7), abs=1e-6)]
    assert marks(axes, "D") == [pytest.approx((6, 2.7), abs=1e-6)]


def test_two_repeats_have_their_range_and_one_has_no_band(draw: Callable[..., Any]) -> None:
    runs = [Run("baseline", 1), Run("mzhybrid", 1, loss=shifted(0.1)), Run("mzhybrid", 2, loss=shifted(0.3))]
    submission, (cell,) = planted(runs, steps=4)
    fig = draw(plot_loss_over_steps(submission, cell))
    (band,) = bands(fig.axes[0])
    assert band[3] == pytest.approx((3.1, 3.3), abs=1e-6)
    assert fig.legends[0].get_title().get_text() == "1 run; mean and range of 2 runs"


def test_long_runs_are_thinned_to_means_of_equal_numbers_of_steps(draw: Callable[..., Any]) -> None:
    runs = [Run("baseline", loss=lambda k: float(k)), Run("mzhybrid", loss=lambda k: float(k % 25))]
    submission, (cell,) = planted(runs, steps=1000)
    figure = plot_loss_over_steps(submission, cell)
    curves = lines(draw(figure).axes[0])
    assert list(curves["baseline"].get_xdata()) == [25 * k + 13 for k in range(40)]
    assert list(curves["baseline"].get_ydata()) == pytest.approx([25 * k + 13 for k in range(40)])
    assert list(curves["scheme of the panel"].get_ydata()) == pytest.approx([12.0] * 40)
    assert figure is not None and "the mean of 25 steps" in figure.caption


def test_a_step_stands_at_the_time_that_the_steps_before_took(draw: Callable[..., Any]) -> None:
    runs = [Run("baseline", 1, 0.5), Run("mzhybrid", 1, 0.25), Run("mzhybrid", 2, 0.75)]
    submission, (cell,) = planted(runs, steps=8)
    curves = lines(draw(plot_loss_over_time(submission, cell)).axes[0])
    assert list(curves["baseline"].get_xdata()) == pytest.approx([0.5 * k for k in range(1, 9)])
    assert list(curves["scheme of the panel"].get_xdata()) == pytest.approx([0.5 * k for k in range(1, 9)])


def test_a_line_for_several_steps_takes_the_time_of_all(draw: Callable[..., Any]) -> None:
    submission, (cell,) = planted([Run("baseline", seconds=0.5), Run("sparse", seconds=0.5, every=5)], steps=20)
    curves = lines(draw(plot_loss_over_time(submission, cell)).axes[0])
    assert list(curves["scheme of the panel"].get_xdata()) == pytest.approx([2.5, 5, 7.5, 10])
    assert list(curves["scheme of the panel"].get_ydata()) == pytest.approx([2 + 3 / k for k in (5, 10, 15, 20)])


def test_a_run_that_was_resumed_has_no_time_since_its_beginning() -> None:
    submission, (cell,) = planted([Run("baseline", resumed_from=4)], steps=8)
    assert plot_loss_over_time(submission, cell) is None
    assert plot_loss_over_steps(submission, cell) is not None


def test_a_diverged_run_ends_the_curve_of_its_scheme_with_a_cross(draw: Callable[..., Any]) -> None:
    def broken(step: int) -> float:
        return 3.0 if step < 5 else math.nan

    runs = [Run("baseline"), Run("naive", 1), Run("naive", 2, loss=broken, state="nan", valid={3: 3.0, 7: math.nan})]
    submission, (cell,) = planted(runs, steps=8)
    (axes,) = draw(plot_loss_over_steps(submission, cell)).axes
    assert list(lines(axes)["scheme of the panel"].get_xdata()) == [1, 2, 3, 4]
    assert marks(axes, "X") == [pytest.approx((4, (2.75 + 3) / 2))]
    assert axes.get_title(loc="left") == "naive\n1 of 2 diverged"


def test_runs_that_did_not_complete_are_drawn_only_where_none_did(draw: Callable[..., Any]) -> None:
    runs = [
        Run("baseline"),
        Run("some", 1),
        Run("some", 2, loss=shifted(9), state="out of memory", taken=3),
        Run("none", 1, loss=shifted(1), state="timed out", taken=3),
    ]
    submission, (cell,) = planted(runs, steps=6)
    some, none = draw(plot_loss_over_steps(submission, cell)).axes
    assert list(lines(some)["scheme of the panel"].get_ydata()) == pytest.approx([2 + 3 / k for k in range(1, 7)])
    assert some.get_title(loc="left") == "some\n1 of 2 out of memory"
    assert list(lines(none)["scheme of the panel"].get_ydata()) == pytest.approx([3 + 3 / k for k in range(1, 4)])
    assert none.get_title(loc="left") == "none\ntimed out"


def test_each_scheme_has_a_panel_and_the_baseline_stands_in_all(draw: Callable[..., Any]) -> None:
    names = [f"scheme-{k}" for k in range(10)]
    submission, (cell,) = planted([Run(name) for name in ("baseline", *names)], steps=5)
    axes = draw(plot_loss_over_steps(submission, cell)).axes
    assert [item.get_title(loc="left") for item in axes] == names
    assert all(set(lines(item)) == {"baseline", "scheme of the panel"} for item in axes)


def test_a_study_without_losses_has_no_figure() -> None:
    submission, (cell,) = planted([Run("baseline", taken=0, state="failed")], steps=5)
    assert plot_loss_over_steps(submission, cell) is None and plot_loss_over_time(submission, cell) is None
