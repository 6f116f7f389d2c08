"""Measure the error of lossy codecs against bits per value, on sampled messages of each kind of content.

    python benchmarks/error_per_bit.py DIR [--codecs NAME ...] [--mixed BITS ...] [--plots DIR] [--tiny]

DIR is the directory of a run or of one or more submissions whose study has `train.keep_messages`
(benchmarks/messages.py). An error is the relative RMS error of one encoding. Medians over messages are shown. `*` marks
the codecs of the Pareto front: no other codec in the table needs fewer bits with at most the same error. Rows `mixed-B`
show the mixed widths of one replica's gradients under a budget of B bits per value (`mixed_bits` of a scheme), with the
codec of preset dynamiq. Their bits include the exchanged norms. Requires hpcbench[bench], hpcbench[train] for mixed
widths, and hpcbench[report] for plots.
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from messages import OF_DIFFERENCES, Key, encode, read_samples
from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench import options
from hpcbench.bench.table import error
from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.console import columns
from hpcbench.contract.mixed_widths import LEVEL_BYTES, SUPER_GROUP, explain_wrong_budget, make_budget, name_codecs
from hpcbench.contract.traffic import find_content
from hpcbench.errors import UserError
from hpcbench.plot_labels import place_labels
from hpcbench.plot_style import grid, power
from hpcbench.present.document import Chapter, Document, Figure
from hpcbench.present.figures import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

CODECS = (
    *("bf16", "fp8e4m3", "int8:256", "zfp:8", "zfp:4", "sign:1024", "int4:32", "int4:128"),
    *(f"int{bits}:{block}/256{levels}" for bits in (4, 3) for block in (32, 16) for levels in ("", ":nonuniform")),
    *("int2:32/256", "int2:16/256"),
    *("mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e2m3", "mxfp6:e3m2", "nvfp4"),
    *(f"mxfp4{rule}" for rule in ("", ":ceil", ":even", ":rceil")),
    *(
        f"{stage}+{codec}"
        for codec in ("int4:128", "int4:32/256", "int3:16/256", "mxfp4:rceil", "nvfp4")
        for stage in ("rotate64", "hadamard64", "rotate1024", "hadamard1024")
    ),
)
MIXED = (4.5625, 5.0)
"""Budgets of mixed widths: the size of their 4-bit codec, and the budget of preset dynamiq."""
MIXED_CODEC = "int4:16/256:nonuniform"
CONTENTS = ("gradients", "activations", "gradients of activations", "weights", "weight differences")


class Point(NamedTuple):
    """Bits per value and error of a codec, on messages with one kind of content."""

    bits: float
    relative_rmse: float


def find_kind(key: Key) -> str | None:
    """Return the content of messages, one of `CONTENTS`, or None for other messages."""
    traffic = tuple(key.channel.split())
    content, kind = find_content(traffic), traffic[2]
    if content == "activations":
        return "activations" if kind == "ACT" else "gradients of activations"
    if kind == "PARAM":
        return "weight differences" if key.operation.endswith(OF_DIFFERENCES) else "weights"
    return "gradients" if content == "gradients" and kind == "GRAD" else None


def find_front(points: dict[str, Point]) -> set[str]:
    """Return the names of the points that are not Pareto-dominated."""
    return {
        name
        for name, point in points.items()
        if not any(
            other.bits <= point.bits and other.relative_rmse <= point.relative_rmse and other != point
            for other in points.values()
        )
    }


def encode_mixed(x: Array, bits: float) -> Point | None:
    """Encode gradients of shape (n,) with mixed widths. Return None for fewer values than a super-group has."""
    import torch

    from hpcbench.parallel.mixed_widths import choose_widths, compute_levels

    budget = make_budget(x.size, MIXED_CODEC, bits, scattered=False)
    if budget is None:
        return None
    levels = compute_levels(torch.from_numpy(x.astype(np.float32))[None], budget.groups)
    _, chosen = choose_widths(levels, budget)
    complete = budget.groups * SUPER_GROUP
    narrow, middle, wide = (x[:complete].reshape(-1, SUPER_GROUP)[places[0]].reshape(-1) for places in chosen)
    messages = narrow, np.concatenate([middle, x[complete:]]), wide
    nbytes, square = float(budget.groups * LEVEL_BYTES), 0.0
    for name, message in zip(name_codecs(MIXED_CODEC), messages, strict=True):
        if message.size and (coded := encode(name, message)) is not None:
            nbytes += message.nbytes / coded.ratio
            if np.any(message):  # The error of zeros is zero. Their relative error is undefined.
                square += coded.relative_rmse**2 * _sum_squares(message)
    return Point(8 * nbytes / x.size, math.sqrt(square / _sum_squares(x)))


def _sum_squares(x: Array) -> float:
    return float(np.sum(np.square(x.astype(np.float64))))


def measure(
    directory: Path, codecs: Sequence[str], mixed: Sequence[float]
) -> tuple[dict[str, dict[str, Point]], dict[str, int]]:
    """Return the points for each kind of content and codec, and the number of messages for each kind of content."""
    taken: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[str, int] = defaultdict(int)
    for key, message in read_samples(directory):
        kind = find_kind(key)
        if kind is None:
            continue
        x: Array = np.frombuffer(message.values, BFLOAT16 if message.dtype == "bfloat16" else message.dtype)
        if not np.any(x):
            continue  # A relative error requires nonzero values.
        counts[kind] += 1
        for name in codecs:
            coded = encode(name, x)
            if coded is not None:
                taken[kind][name].append(Point(8 * x.itemsize / coded.ratio, coded.relative_rmse))
        for bits in mixed if kind == "gradients" else ():
            if (point := encode_mixed(x, bits)) is not None:
                taken[kind][f"mixed-{bits:g}"].append(point)
    points = {
        kind: {
            name: Point(median(p.bits for p in each), median(p.relative_rmse for p in each))
            for name, each in taken[kind].items()
        }
        for kind in CONTENTS
        if kind in taken
    }
    return points, counts


def render(points: dict[str, dict[str, Point]], counts: dict[str, int]) -> Table:
    """Return the table, with a row for each codec and a column for each kind of content."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("codec")
    table.add_column("bits", justify="right")
    for kind in points:
        table.add_column(f"{kind} ({counts[kind]})", justify="right")
    fronts = {kind: find_front(by_name) for kind, by_name in points.items()}
    names = {name for by_name in points.values() for name in by_name}
    bits = {name: median(by_name[name].bits for by_name in points.values() if name in by_name) for name in names}
    for name in sorted(names, key=lambda name: (-bits[name], name)):
        cells = [
            error(by_name[name].relative_rmse) + ("*" if name in fronts[kind] else " ") if name in by_name else "- "
            for kind, by_name in points.items()
        ]
        table.add_row(name, f"{bits[name]:.2f}", *cells)
    return table


def draw_figure(points: dict[str, dict[str, Point]]) -> Figure:
    """Return the figure, with a plot for each kind of content and lines along the Pareto fronts."""

    def draw(figure: "Canvas") -> None:
        figure.set_size_inches(9.0, 3.4 * ((len(points) + 1) // 2))
        labels = []
        for number, (kind, by_name) in enumerate(points.items()):
            axes = figure.add_subplot((len(points) + 1) // 2, 2, number + 1)
            front = sorted((by_name[name], name) for name in find_front(by_name))
            axes.plot([point.bits for point, _ in front], [point.relative_rmse for point, _ in front], linewidth=1)
            axes.scatter([p.bits for p in by_name.values()], [p.relative_rmse for p in by_name.values()], s=12)
            axes.set_title(kind)
            axes.set_xlabel("bits per value")
            axes.set_ylabel("relative RMSE")
            axes.set_yscale("log")
            least = min((point.relative_rmse for point in by_name.values() if point.relative_rmse > 0), default=0.1)
            decades = range(math.floor(math.log10(least)), 2)
            axes.set_yticks([10.0**k for k in decades], [power(k) for k in decades])
            axes.minorticks_off()
            grid(axes)
            labels.append((axes, [(name, point.bits, point.relative_rmse) for point, name in front]))
        place_labels(figure, labels)

    caption = "Relative RMS error over bits per value. The line joins the codecs of the Pareto front."
    return Figure("error-per-bit", "Error per bit", caption, draw)


def main() -> int:
    """Measure, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--codecs", nargs="+", default=CODECS, help="names as in a study")
    parser.add_argument("--mixed", nargs="*", type=float, default=MIXED, metavar="BITS", help="budgets of mixed widths")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="directory for the figure as SVG and PNG")
    arguments = parse(parser, codecs=["int8:256", "int4:32", "int4:32/256"])
    codecs = tuple(dict.fromkeys(arguments.codecs))
    try:
        options.check_codecs(codecs)
        if wrong := next(filter(None, (explain_wrong_budget(MIXED_CODEC, bits) for bits in arguments.mixed)), None):
            raise UserError(wrong)
        points, counts = measure(arguments.directory, codecs, tuple(dict.fromkeys(arguments.mixed)))
        if not points:
            raise UserError("the sampled messages contain neither gradients, activations nor weights")
        if arguments.plots:
            write(Document("Error per bit", (Chapter("", "", (draw_figure(points),)),)), arguments.plots)
    except UserError as fault:
        print(f"error_per_bit: {fault}", file=sys.stderr)
        return 2
    print(*head(Path(__file__), ["numpy"]), sep="\n")
    Console(width=max(columns(), 140), highlight=False).print(render(points, counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
