"""Compare predicted gains with the gains of real runs on limited links: a check of the map of where_it_pays.py.

    python benchmarks/measured_gains.py [--stored FILE.json ...] [--json FILE] [--tiny]

The stored results of predict_measured.py contain predictions and measurements of training on four virtual hosts with
limited links. A cell is a layout at a rate of the links. For each cell, the script prints the gain of the scheme with
the shortest predicted time, over a cast of all messages to bf16, as on the map. Each repeat ran all schemes: `measured`
is the mean gain, `lowest` and `highest` are gains of single repeats. By default, the three blind tests of the model are
shown: they were measured after the model was complete.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

from provenance import ROOT, head, provenance
from rich.table import Table
from tiny import parse

from hpcbench.console import show_table

CAST = "naive-bf16"
SCHEMES = ("naive-int8", "zhybrid-16-8")
PAYS = 0.03
"""Smallest gain for which compression is worth trying, as in where_it_pays.py."""
CLEAR = 0.10
"""Predicted gain that is larger than most errors."""
MAP = ROOT / "results/reference/where-it-pays.json"
STORED = tuple(ROOT / f"results/reference/predict-measured-{name}.json" for name in ("epyc", "driving", "by-work"))


@dataclass(frozen=True)
class CheckedCell:
    """Predicted and measured gain of a scheme in one cell."""

    test: str
    cell: str
    scheme: str
    predicted: float
    measured: Sequence[float]
    """Gain in each repeat."""

    @property
    def mean(self) -> float:
        """Mean measured gain."""
        return fmean(self.measured)


def read_cells(path: Path) -> list[CheckedCell]:
    """Read the cells of a stored result."""
    times: dict[str, dict[str, Mapping[str, object]]] = {}
    for each in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        times.setdefault(each["study"], {})[each["scheme"]] = each
    test = path.stem.removeprefix("predict-measured-")
    return [check_cell(test, cell, schemes) for cell, schemes in times.items()]


def check_cell(test: str, cell: str, schemes: Mapping[str, Mapping[str, object]]) -> CheckedCell:
    """Return the gain over the cast of the scheme with the shortest predicted time."""
    predicted = {name: float(str(schemes[name]["predicted"])) for name in (CAST, *SCHEMES)}
    best = min(SCHEMES, key=lambda name: predicted[name])
    casts, times = (list(map(float, _list_times(schemes[name]))) for name in (CAST, best))
    gains = [cast / seconds - 1 for cast, seconds in zip(casts, times, strict=True)]
    return CheckedCell(test, cell, best, predicted[CAST] / predicted[best] - 1, gains)


def _list_times(row: Mapping[str, object]) -> list[float]:
    times = row["measured"]
    assert isinstance(times, list)
    return times


def show(cells: Sequence[CheckedCell]) -> None:
    """Print the cells in the order of the predicted gain."""
    table = Table(title="Gain over a cast to bf16 on limited links")
    for name in ("test", "cell", "scheme"):
        table.add_column(name)
    for name in ("predicted", "measured", "lowest", "highest"):
        table.add_column(name, justify="right")
    for each in sorted(cells, key=lambda each: -each.predicted):
        gains = (each.predicted, each.mean, min(each.measured), max(each.measured))
        table.add_row(each.test, each.cell, each.scheme, *(f"{100 * gain:+.1f} %" for gain in gains))
    show_table(table)


def summarize(cells: Sequence[CheckedCell]) -> None:
    """Print a row for each test and for all tests."""
    table = Table(
        title=f"Agreement on a gain of {100 * PAYS:.0f} %; predicted minus measured gain in percentage points"
    )
    table.add_column("test")
    for name in ("cells", "agree", "mean", "median", "predicted higher"):
        table.add_column(name, justify="right")
    tests = dict.fromkeys(each.test for each in cells)
    groups = {test: [each for each in cells if each.test == test] for test in tests}
    for test, group in {**groups, "all": list(cells)}.items():
        agree = sum((each.predicted >= PAYS) == (each.mean >= PAYS) for each in group)
        excess = [100 * (each.predicted - each.mean) for each in group]
        higher = sum(each > 0 for each in excess)
        table.add_row(test, f"{len(group)}", f"{agree}", f"{fmean(excess):+.1f}", f"{median(excess):+.1f}", f"{higher}")
    show_table(table)


def main() -> None:
    """Read the stored results and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=Path, nargs="+", default=list(STORED))
    parser.add_argument("--json", type=Path)
    options = parse(parser, stored=list(STORED[-1:]))
    print("\n".join(head(Path(__file__))), end="\n\n", flush=True)
    cells = [cell for path in options.stored for cell in read_cells(path)]
    show(cells)
    summarize(cells)
    gains = [each["gain"] for each in json.loads(MAP.read_text(encoding="utf-8"))["cells"]]
    clear = sum(gain >= CLEAR for gain in gains)
    high = [each for each in cells if each.predicted >= CLEAR]
    few = sum(each.mean < PAYS for each in high)
    print(f"Smallest predicted gain: {100 * min(each.predicted for each in cells):.1f} %.")
    limits = f"{100 * CLEAR:.0f} %", f"{100 * PAYS:.0f} %"
    print(f"Predicted gain of {limits[0]} or more: {len(high)} cells; {few} of them gained less than {limits[1]}.")
    print(f"The map has {clear} of {len(gains)} cells with a predicted gain of {100 * CLEAR:.0f} % or more.")
    if options.json:
        document = {"provenance": provenance(Path(__file__)), "cells": [asdict(each) for each in cells]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
