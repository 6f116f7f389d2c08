"""Tests of four plots: speed and loss, scaling, time, and error against wire bytes.

Markers match the compared numbers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_results import titan_lines, write_program
from planted_study import Run, channel, planted

from hpcbench.report.front import compute_front
from hpcbench.report.plots.over_wire import plot_error_over_wire
from hpcbench.report.plots.speed import plot_scaling, plot_throughput
from hpcbench.report.plots.step import PARTS, plot_time_split
from hpcbench.report.plots.trade_off import find_optimal, plot_trade_off
from hpcbench.report.sections import read


def points(axes: Any, marker: str = "o") -> list[tuple[float, float]]:
    """Return the positions of markers."""
    selected = [line for line in axes.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in selected for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def bars(axes: Any) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return both ends of each interval. Intervals are drawn as lines of two points without a marker."""
    selected = [line for line in axes.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2]
    return [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in selected if line.get_color() == "#0072b2"]


def list_texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def lines(axes: Any) -> tuple[list[str], list[str]]:
    """Return the names on the left of the lines, and the numbers on the right."""
    left, right = ([label.get_text() for label in panel.get_yticklabels()] for panel in (axes, axes.child_axes[0]))
    return left, right


def test_speed_stands_at_its_estimate_between_the_ends_of_its_interval(draw: Callable[..., Any]) -> None:
    seconds = {"baseline": (0.5, 0.52, 0.51), "fast": (0.4, 0.41, 0.405), "even": (0.5, 0.5, 0.53)}
    runs = [Run(scheme, r + 1, times[r]) for scheme, times in seconds.items() for r in range(3)]
    submission, cells = planted(runs)
    axes = draw(plot_throughput(submission, cells)).axes[0]
    fast, even = (cells[0].row(scheme).speed for scheme in ("fast", "even"))  # type: ignore[union-attr]
    assert points(axes) == [(fast.estimate, 1), (even.estimate, 2)]
    assert bars(axes) == [((fast.low, fast.high), (1, 1)), ((even.low, even.high), (2, 2))]
    fills = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"]
    assert [fast.shown, even.shown] == ["faster", "inconclusive"] and fills == ["#0072b2", "none"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["baseline", "fast", "even"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the baseline stands at the top"
    left, right = axes.get_xlim()
    assert left < min(1, even.low) and right > fast.high


def test_one_pair_has_no_interval_and_says_so(draw: Callable[..., Any]) -> None:
    submission, cells = planted([Run("baseline", 1, 0.5), Run("fast", 1, 0.4)])
    axes = draw(plot_throughput(submission, cells)).axes[0]
    assert points(axes) == [(pytest.approx(1.25), 1)]
    assert not bars(axes) and list_texts(axes) == ["1 pair", "samples/s"]
    assert [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"] == ["none"]


def test_speeds_of_programs_have_their_unit(draw: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "001", "torchtitan", {"baseline": [titan_lines(500)], "int8": [titan_lines(800)]})
    ((submission, cells),) = read([tmp_path / "001"]).sections
    axes = draw(plot_throughput(submission, cells)).axes[0]
    assert list_texts(axes) == ["1 pair", "tokens/s/rank"]
    assert [label.get_text() for label in axes.child_axes[0].get_yticklabels()] == ["500.0", "800.0"]


def test_schemes_that_are_not_compared_keep_their_line_and_the_reason(draw: Callable[..., Any]) -> None:
    late = Run("late", 1, 0.4, state="timed out", taken=9)
    submission, cells = planted([Run("baseline", 1), Run("fast", 1, 0.4), late, Run("alone", 2)])
    fig = draw(plot_throughput(submission, cells))
    axes = fig.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["baseline", "fast", "late\ntimed out", "alone"]
    assert list_texts(axes) == ["1 pair", "not compared", "no pair with the baseline", "samples/s"]
    right = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert right == ["16.00", "20.00", "20.00*", "16.00"]


def test_an_interval_that_says_nothing_does_not_widen_the_frame_without_end(draw: Callable[..., Any]) -> None:
    runs = [Run("baseline", 1, 0.5), Run("baseline", 2, 0.5), Run("wild", 1, 0.1), Run("wild", 2, 2.0)]
    submission, cells = planted(runs)
    axes = draw(plot_throughput(submission, cells)).axes[0]
    speed = cells[0].rows[1].speed
    assert speed is not None and speed.high is not None and speed.high > 1e5
    assert axes.get_xlim()[1] < 10 and axes.get_xscale() == "log"


def test_without_a_baseline_there_is_no_figure_of_speeds() -> None:
    submission, cells = planted([Run("fast", 1), Run("other", 1)])
    assert plot_throughput(submission, cells) is None and plot_trade_off(submission, cells[0]) is None


def test_the_parts_of_a_step_add_up_to_it_and_what_was_hidden_stands_beside(draw: Callable[..., Any]) -> None:
    # 18 counted steps of 8 ranks: 144 rank-steps of 0.5 s.
    busy = {"encode_s": 14.4, "decode_s": 7.2, "transfer_s": 50.4}
    overlapped = channel(exposed_s=36.0, hidden_s=36.0, **busy)
    waited = channel("TP", exposed_s=14.4, transfer_s=14.4)
    submission, (cell,) = planted([Run("baseline", channels=[waited]), Run("zfp", channels=[overlapped, waited])])
    axes = draw(plot_time_split(submission, cell)).axes[0]
    lengths = {part.get_label(): [bar.get_width() for bar in part] for part in axes.containers}
    # Half of the call time was hidden, and so was half of the encoding (0.1 s) and decoding time (0.05 s).
    oracle = {"computation": [400, 150], "waiting": [100, 275], "encoding": [0, 50], "decoding": [0, 25]}
    assert set(lengths) == {*PARTS, "hidden communication"}
    for part, expected in oracle.items():
        assert lengths[part] == pytest.approx(expected), part
    assert lengths["hidden communication"] == pytest.approx([0, 250])
    ends = [sum(lengths[part][k] for part in PARTS) for k in range(2)]
    assert ends == pytest.approx([500, 500])
    lefts = [bar.get_x() for bar in axes.containers[3]]
    assert lefts == pytest.approx([500, 475]), "the parts stand one after another"
    assert axes.get_xlabel() == "mean time of a step and rank / ms"


def test_seconds_that_are_no_division_of_a_step_are_not_drawn() -> None:
    longer_than_the_step = channel(exposed_s=1e6, transfer_s=1e6)
    submission, (cell,) = planted([Run("baseline", channels=[longer_than_the_step])])
    assert plot_time_split(submission, cell) is None
    submission, (cell,) = planted([Run("baseline")])
    assert plot_time_split(submission, cell) is None, "without traffic nothing says what was communication"


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_shows_each_size_and_the_ideal(draw: Callable[..., Any], weak: bool) -> None:
    sizes = (8, 16, 32)
    runs = [
        Run(scheme, 1, seconds, cell={"nodes": size // 8}, ranks=size, batch=size if weak else 8)
        for scheme, times in (("baseline", (0.5, 0.4, 0.4)), ("fast", (0.4, 0.3, 0.2)))
        for size, seconds in zip(sizes, times, strict=True)
    ]
    submission, cells = planted(runs)
    (axes,) = draw(plot_scaling(submission, cells)).axes
    base, fast = (container.lines[0] for container in axes.containers)
    flops = [6.4e8 * (size if weak else 8) / size / 1e9 for size in sizes]
    assert list(base.get_xdata()) == list(sizes) == list(fast.get_xdata())
    assert list(base.get_ydata()) == pytest.approx([f / s for f, s in zip(flops, (0.5, 0.4, 0.4), strict=True)])
    assert list(fast.get_ydata()) == pytest.approx([f / s for f, s in zip(flops, (0.4, 0.3, 0.2), strict=True)])
    (ideal,) = (line for line in axes.lines if line.get_linestyle() == "--")
    assert list(ideal.get_ydata()) == pytest.approx([flops[0] / 0.5] * 2)
    kind = "weak, batch 1 per rank" if weak else "strong, global batch 8"
    assert axes.get_title(loc="left") == f"fast\n{kind}"
    assert axes.get_ylim()[0] == 0, "a share of the speed can be read off"


def test_one_size_has_no_scaling() -> None:
    submission, cells = planted([Run("baseline"), Run("fast")])
    assert plot_scaling(submission, cells) is None


def test_errors_stand_by_channel_and_codec(draw: Callable[..., Any]) -> None:
    def sampled(error: float) -> list[dict[str, Any]]:
        gradients = channel(message_bytes=100, wire_bytes=25, sampled_error=error)
        forward = channel("TP", phase="FORWARD", codec="fp16", message_bytes=100, wire_bytes=50, sampled_error=1e-4)
        exact = channel("PP", codec="mpc", message_bytes=100, wire_bytes=80, sampled_error=None)
        idle = channel("ZERO", codec="zfp:8", message_bytes=9, wire_bytes=9, coded_bytes=0, sampled_error=0.02)
        return [gradients, forward, exact, idle]

    runs = [Run("baseline"), Run("zfp", 1, channels=sampled(0.05)), Run("zfp", 2, channels=sampled(0.07))]
    submission, (cell,) = planted(runs)
    gradients, forward = draw(plot_error_over_wire(submission, cell)).axes
    assert [axes.get_title(loc="left") for axes in (gradients, forward)] == ["DP backward", "TP forward"]
    assert points(gradients) == [pytest.approx((0.06, 0))] and lines(gradients) == (["zfp:8"], ["0.25"])
    assert points(forward) == [pytest.approx((1e-4, 0))] and lines(forward) == (["fp16"], ["0.50"])
    submission, (cell,) = planted([Run("baseline")])
    assert plot_error_over_wire(submission, cell) is None


def test_small_channels_and_codecs_of_the_errors_are_together(draw: Callable[..., Any]) -> None:
    """Six channels, one of them with eight codecs, are shown as four groups of at most five lines."""
    many = [channel("DP", codec=f"codec:{k}", message_bytes=900 - k, wire_bytes=90 * (k + 1)) for k in range(8)]
    few = [
        channel(dimension, message_bytes=90 - k, wire_bytes=9) for k, dimension in enumerate(("TP", "PP", "EP", "CP"))
    ]
    most = channel("ZERO", message_bytes=9000, wire_bytes=90)
    sampled = [{**item, "sampled_error": 0.01} for item in (*few, *many, most)]
    submission, (cell,) = planted([Run("baseline"), Run("zfp", 1, channels=sampled)])
    axes = draw(plot_error_over_wire(submission, cell)).axes
    heads = [item.get_title(loc="left") for item in axes]
    assert heads == ["ZERO backward", "DP backward", "TP backward", "other (3 channels)"]
    names, ratios = lines(axes[1])
    assert sorted(names) == ["codec:0", "codec:1", "codec:2", "codec:3", "other (4 codecs)"]
    assert ratios[names.index("other (4 codecs)")] == "0.50-0.81" and ratios[names.index("codec:0")] == "0.10"
    assert len(points(axes[1])) == 8 and len(points(axes[3])) == 3, "none is left out"


def test_schemes_stand_at_their_speed_and_loss_with_margin_intervals_and_front(draw: Callable[..., Any]) -> None:
    rows = {"baseline": ((2.0, 2.1), 0.5), "strong": ((2.6, 2.8), 0.2), "mild": ((2.001, 2.1), 0.4)}
    runs = [
        Run(scheme, r + 1, seconds * (1 + 0.01 * r * (scheme == "mild")), valid={20: losses[r]})
        for scheme, (losses, seconds) in rows.items()
        for r in (0, 1)
    ]
    diverged = Run("naive", 1, state="nan")
    submission, (cell,) = planted([*runs, diverged])
    figure = plot_trade_off(submission, cell)
    axes = draw(figure).axes[0]
    marks = [place for mark in "oDXs" for place in points(axes, mark)]
    mild, strong = cell.row("mild"), cell.row("strong")
    assert mild and mild.speed and mild.loss and strong and strong.speed and strong.loss
    assert sorted(marks) == [
        pytest.approx((1, 0)),
        pytest.approx((mild.speed.estimate, 0.0005)),
        pytest.approx((strong.speed.estimate, 0.65)),
    ]
    bars_of_two = [
        (tuple(line.get_xdata()), tuple(line.get_ydata())) for line in axes.lines if len(line.get_xdata()) == 2
    ]
    assert ((mild.speed.low, mild.speed.high), (mild.loss.estimate,) * 2) in bars_of_two
    assert ((strong.speed.estimate,) * 2, (strong.loss.low, strong.loss.high)) in bars_of_two
    (front,) = (line for line in axes.lines if line.get_linestyle() == "--")
    unbeaten = compute_front(cell).unbeaten
    places = {"baseline": (1, 0)} | {row.scheme: (row.speed.estimate, row.loss.estimate) for row in (mild, strong)}
    assert [tuple(place) for place in front.get_xydata()] == sorted(places[scheme] for scheme in unbeaten)
    assert figure is not None and figure.caption.endswith("not known: naive.")
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((-0.0205, 0.0205))
    assert {text.get_text() for text in axes.texts} == {"baseline", "mild", "strong"}


@pytest.mark.parametrize(
    ("places", "line"),
    [
        ([], []),
        ([(1.0, 0.0)], [(1.0, 0.0)]),
        ([(1.0, 0.0), (2.0, 0.1), (1.5, 0.3), (1.2, -0.1)], [(1.2, -0.1), (2.0, 0.1)]),
        ([(1.0, 0.2), (2.0, 0.2), (2.0, 0.1)], [(2.0, 0.1)]),
        ([(3.0, 0.3), (1.0, 0.1), (2.0, 0.2)], [(1.0, 0.1), (2.0, 0.2), (3.0, 0.3)]),
    ],
)
def test_the_line_of_the_pareto_front_has_no_zigzag(
    places: list[tuple[float, float]], line: list[tuple[float, float]]
) -> None:
    assert find_optimal(places) == line


def test_scaling_has_the_range_of_two_repeats(draw: Callable[..., Any]) -> None:
    runs = [
        Run("baseline", repeat, seconds, ranks=ranks, cell={"nodes": ranks // 8})
        for ranks in (8, 16)
        for repeat, seconds in ((1, 0.4), (2, 0.5))
    ]
    submission, cells = planted(runs)
    fig = draw(plot_scaling(submission, cells))
    (bars_of_errors,) = fig.axes[0].containers[0].lines[2]
    ends = [sorted(float(y) for _, y in segment) for segment in bars_of_errors.get_segments()]
    speeds = [6.4e8 * 8 / ranks / 1e9 for ranks in (8, 16)]
    assert ends == [pytest.approx([run / 0.5, run / 0.4]) for run in speeds]
    assert fig.legends[0].get_title().get_text() == "mean and range of 2 runs"
