"""Figures of a prediction: time breakdown, memory peaks, and gain against bandwidth, ranks and tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hpcbench import plot_style
from hpcbench.contract.text import make_printable
from hpcbench.plot_labels import fitted
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import KINDS, PEAKS, find_byte_unit
from hpcbench.predict.prediction import Prediction, compute_gains, scale_to_ranks
from hpcbench.predict.step import PARTS
from hpcbench.predict.workload import Workload
from hpcbench.present.document import Figure
from hpcbench.present.notation import seconds_unit

_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Factors that are applied to the site's bandwidth."""
_SCALES = (1, 2, 4, 8)
"""Multiples of the number of replicas, and of the number of micro-batches per replica."""


def draw_figures(predictions: Sequence[Prediction], about: dict[str, Any], machine: Machine) -> list[Figure]:
    """Return all figures. Curves are drawn for the first cell only."""
    cell, ranks = predictions[0].cell, predictions[0].workload.layout.ranks
    first = [each for each in predictions if (each.cell, each.workload.layout.ranks) == (cell, ranks)]
    workloads = [(each.scheme, each.workload) for each in first]
    unit, scale = find_byte_unit(each.memory.bytes for each in first)
    clock = seconds_unit(each.time.seconds.value for each in first)
    bars = [
        _bars(
            ("predicted-time", "Parts of the step time"),
            [each.scheme for each in first],
            {part: [each.time.parts[part] / clock.scale for each in first] for part in PARTS},
            f"time of a step / {clock.name}",
        ),
        _bars(
            ("predicted-memory", "Memory of the rank that needs the most, at the three peaks"),
            [f"{each.scheme}, {peak}" for each in first for peak in PEAKS],
            {kind: [each.memory.peaks[peak][kind] / scale for each in first for peak in PEAKS] for kind in KINDS},
            unit,
        ),
    ]
    gains = [each.against.gain for each in first if each.against]
    if about["baseline"] not in dict(workloads) or all(gain is None for gain in gains):
        return bars
    baseline = about["baseline"]
    fabric = machine.fabric
    machines = [
        (workloads, replace(machine, fabric=replace(fabric, node_bytes_per_s=fabric.node_bytes_per_s * factor)))
        for factor in _FACTORS
    ]
    train = workloads[0][1].train
    tokens = train.global_batch // workloads[0][1].layout.dp * train.seq_len
    more_ranks, more_tokens = (
        [([(name, enlarge(run, scale)) for name, run in workloads], machine) for scale in _SCALES]
        for enlarge in (_scale_ranks, _scale_batch)
    )
    return [
        *bars,
        _curves(
            ("predicted-gain-bandwidth", "Gain by bandwidth of a node's network"),
            [fabric.node_bytes_per_s * factor * 8e-9 for factor in _FACTORS],
            compute_gains(machines, baseline),
            "Gbit/s per node",
        ),
        _curves(
            ("predicted-gain-ranks", "Gain by number of ranks, with constant tokens per replica"),
            [ranks * scale for scale in _SCALES],
            compute_gains(more_ranks, baseline),
            "ranks",
        ),
        _curves(
            ("predicted-gain-tokens", "Gain by tokens per replica"),
            [tokens * scale for scale in _SCALES],
            compute_gains(more_tokens, baseline),
            "tokens per replica and step",
        ),
    ]


def _scale_ranks(workload: Workload, scale: int) -> Workload:
    return scale_to_ranks(workload, workload.layout.ranks * scale)


def _scale_batch(workload: Workload, scale: int) -> Workload:
    batch = workload.train.global_batch * scale
    return replace(workload, train=workload.train.model_copy(update={"global_batch": batch}))


_NAMES = 130.0
"""Maximum width of a name in points."""


Named = tuple[str, str]
"""Name and title of a figure."""


def _bars(named: Named, labels: list[str], stacks: dict[str, list[float]], axis: str) -> Figure:
    def draw(canvas: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        canvas.set_size_inches(2 * plot_style.WIDTH, 1.0 + 0.2 * len(labels))
        axes = canvas.subplots()
        places = range(len(labels))
        left = [0.0] * len(labels)
        shown = {name: values for name, values in stacks.items() if any(values)}
        for k, (name, values) in enumerate(shown.items()):
            colour = plot_style.COLOURS[k % len(plot_style.COLOURS)]
            hatch = plot_style.HATCHES[k // len(plot_style.COLOURS)]
            axes.barh(
                places, values, left=left, label=name, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3
            )
            left = [a + b for a, b in zip(left, values, strict=True)]
        axes.set_yticks(places, [fitted(make_printable(label), _NAMES, 7) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(axis)
        canvas.legend(loc="outside right center")

    return Figure(*named, "", draw)


def _curves(named: Named, x: list[float], curves: dict[str, list[float]], axis: str) -> Figure:
    def draw(canvas: Any) -> None:
        canvas.set_size_inches(1.6 * plot_style.WIDTH, plot_style.WIDTH)
        axes = canvas.subplots()
        for k, (name, values) in enumerate(curves.items()):
            axes.plot(
                x,
                [100 * value for value in values],
                label=fitted(make_printable(name), _NAMES, 7),
                color=plot_style.COLOURS[k % len(plot_style.COLOURS)],
                marker=plot_style.MARKS[k % len(plot_style.MARKS)],
                linestyle=plot_style.DASHES[k // len(plot_style.COLOURS) % len(plot_style.DASHES)],
            )
        axes.axhline(0, color=plot_style.INK, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks(x, [_short(value) for value in x])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(axis)
        axes.set_ylabel("predicted gain over the baseline, percent")
        canvas.legend(loc="outside right center")

    return Figure(*named, "", draw)


def _short(value: float) -> str:
    """Format a number with at most five characters: 0.5, 96, 786k, 12.6M."""
    rounded = float(f"{value:.3g}")
    scale, letter = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if rounded >= s), (1.0, ""))
    return f"{rounded / scale:.3g}{letter}" if letter or rounded >= 0.01 or rounded == 0 else f"{rounded:.0e}"
