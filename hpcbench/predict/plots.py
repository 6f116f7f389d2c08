"""Figures of a prediction: where the time goes, the memory peaks, and the gain over bandwidth, ranks and tokens."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench import plot_style
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import KINDS, PEAKS, memory_unit
from hpcbench.predict.prediction import Prediction, gains, on_ranks
from hpcbench.predict.step import PARTS
from hpcbench.predict.subject import Subject

_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Factors of the site's bandwidth."""
_SCALES = (1, 2, 4, 8)
"""Multiples of replicas, and of micro-batches a replica."""


def draw(found: Sequence[Prediction], about: dict[str, Any], machine: Machine, directory: Path) -> dict[str, Path]:
    """Write all figures as SVG and PNG; gives each one's caption and SVG file. The curves are of the first cell.

    Raises
    ------
    UserError
        matplotlib is missing, or the directory cannot be written.
    """
    first = [
        one for one in found if (one.cell, one.subject.layout.ranks) == (found[0].cell, found[0].subject.layout.ranks)
    ]
    subjects = [(one.scheme, one.subject) for one in first]
    directory.mkdir(parents=True, exist_ok=True)
    unit, scale = memory_unit(one.memory for one in first)
    drawn = {
        "Where the time of a step goes": _bars(
            directory / "predicted-time",
            [one.scheme for one in first],
            {part: [one.time.parts[part] for one in first] for part in PARTS},
            "seconds a step",
        ),
        "Memory of the rank that needs the most, at the three peaks": _bars(
            directory / "predicted-memory",
            [f"{one.scheme}, {peak}" for one in first for peak in PEAKS],
            {kind: [one.memory.peaks[peak][kind] / scale for one in first for peak in PEAKS] for kind in KINDS},
            unit,
        ),
    }
    if about["baseline"] not in dict(subjects) or all(one.against is None or one.against.gain is None for one in first):
        return drawn
    baseline = about["baseline"]
    fabric = machine.fabric
    machines = [
        replace(machine, fabric=replace(fabric, node_bytes_per_s=fabric.node_bytes_per_s * factor))
        for factor in _FACTORS
    ]
    drawn["Gain over the bandwidth of a node's network"] = _curves(
        directory / "predicted-gain-bandwidth",
        [fabric.node_bytes_per_s * factor * 8e-9 for factor in _FACTORS],
        gains(subjects, machines, baseline),
        "Gbit/s a node",
    )
    ranks = first[0].subject.layout.ranks
    drawn["Gain over ranks, with as many tokens a replica"] = _curves(
        directory / "predicted-gain-ranks",
        [ranks * scale for scale in _SCALES],
        _over(
            [[(name, on_ranks(one, ranks * scale)) for name, one in subjects] for scale in _SCALES], machine, baseline
        ),
        "ranks",
    )
    train = subjects[0][1].train
    tokens = train.global_batch // subjects[0][1].layout.dp * train.seq_len
    drawn["Gain over tokens a replica"] = _curves(
        directory / "predicted-gain-tokens",
        [tokens * scale for scale in _SCALES],
        _over([[(name, _longer(one, scale)) for name, one in subjects] for scale in _SCALES], machine, baseline),
        "tokens a replica and step",
    )
    return drawn


def _longer(subject: Subject, scale: int) -> Subject:
    batch = subject.train.global_batch * scale
    return replace(subject, train=subject.train.model_copy(update={"global_batch": batch}))


def _over(cells: Sequence[list[tuple[str, Subject]]], machine: Machine, baseline: str) -> dict[str, list[float]]:
    """Gains of the schemes of each cell, one after the other."""
    found: dict[str, list[float]] = {}
    for subjects in cells:
        for name, (gain,) in gains(subjects, [machine], baseline).items():
            found.setdefault(name, []).append(gain)
    return found


def _bars(stem: Path, labels: list[str], stacks: dict[str, list[float]], axis: str) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * plot_style.WIDTH, 1.6 + 0.3 * len(labels)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(labels)
    shown = {name: values for name, values in stacks.items() if any(values)}
    for k, (name, values) in enumerate(shown.items()):
        colour = plot_style.COLOURS[k % len(plot_style.COLOURS)]
        hatch = plot_style.HATCHES[k // len(plot_style.COLOURS)]
        axes.barh(labels, values, left=left, label=name, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _save(figure, stem)


def _curves(stem: Path, x: list[float], curves: dict[str, list[float]], axis: str) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * plot_style.WIDTH, plot_style.WIDTH), layout="constrained")
    axes = figure.subplots()
    for k, (name, values) in enumerate(curves.items()):
        axes.plot(
            x,
            [100 * value for value in values],
            label=name,
            color=plot_style.COLOURS[k % len(plot_style.COLOURS)],
            marker=plot_style.MARKS[k % len(plot_style.MARKS)],
            linestyle=plot_style.DASHES[k // len(plot_style.COLOURS) % len(plot_style.DASHES)],
        )
    axes.axhline(0, color=plot_style.INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in x])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(axis)
    axes.set_ylabel("predicted gain over the baseline, percent")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _save(figure, stem)


def _save(figure: Any, stem: Path) -> Path:
    figure.savefig(stem.with_suffix(".png"), dpi=plot_style.DPI)
    figure.savefig(stem.with_suffix(".svg"))
    return stem.with_suffix(".svg")
