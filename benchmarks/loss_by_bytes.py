"""Compare the bytes and the losses of the schemes of stored convergence reports with those of their baseline.

    python benchmarks/loss_by_bytes.py [REPORT.json ...] [--first-repeat K] [--tiny]

REPORT is a report as JSON with one cell (`hpcbench report DIR --output FILE.json`). By default, the stored studies
below 8 bits are shown. Bytes are those sent in each step, divided by those of the baseline, for each parallel dimension
and for all. Runs that did not complete and schemes with fewer than two pairs are left out. `p` is the p-value of
"no worse", adjusted as in the report. --first-repeat shows only the differences of the repeats from K: whether a
finding depends on the repeats that were known when a study was extended.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from provenance import ROOT, head
from rich.table import Table
from tiny import parse

from hpcbench.console import show_table
from hpcbench.errors import UserError
from hpcbench.report.statistics import Interval, paired_difference

STORED = tuple(
    ROOT / f"results/reference/convergence/{name}.json" for name in ("few-bits", "data-parallel", "stages", "gradients")
)
ALL = "all"


def count_bytes(runs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the bytes that all ranks send in a step, keyed by dimension, as the mean over runs."""
    counts: dict[str, list[float]] = {}
    for run in runs:
        for each in run["dimensions"]:
            counts.setdefault(each["dimension"], []).append(each["wire_bytes"] / run["throughput_steps"])
        counts.setdefault(ALL, []).append(run["wire_bytes"] / run["throughput_steps"])
    return {dimension: fmean(values) for dimension, values in counts.items()}


def compare_losses(runs: Iterable[Mapping[str, Any]], base: Iterable[Mapping[str, Any]], first: int) -> Interval | None:
    """Return the mean difference of the validation losses of a scheme and its baseline, from repeat `first`.

    Fewer than two pairs have no interval.
    """
    losses, base_losses = ({run["repeat"]: run["loss_valid"] for run in each} for each in (runs, base))
    repeats = [repeat for repeat in losses if repeat >= first and repeat in base_losses]
    if len(repeats) < 2:
        return None
    return paired_difference([losses[repeat] for repeat in repeats], [base_losses[repeat] for repeat in repeats])


def show(path: Path, first: int) -> None:
    """Print the shares of the baseline's bytes, and a row for each scheme."""
    (submission,) = json.loads(path.read_text(encoding="utf-8"))["submissions"]
    (cell,) = submission["cells"]
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in cell["runs"]:
        if run["state"] == "completed":
            runs.setdefault(run["scheme"], []).append(run)
    if cell["baseline"] not in runs:
        raise UserError(f"{path}: no run of {cell['baseline']}, the baseline, completed: report again when it has")
    base = count_bytes(runs[cell["baseline"]])
    dimensions = [each for each in base if each not in (ALL, "EXACT")]
    shares = ", ".join(f"{each} {base[each] / base[ALL]:.1%}" for each in dimensions)
    print(f"{submission['study']}: bytes of {cell['baseline']}: {shares}", flush=True)
    table = Table()
    for name in ("scheme", *dimensions, ALL, "difference (95 % CI)", *(("loss", "finding", "p") if first == 1 else ())):
        table.add_column(name, justify="left" if name in ("scheme", "finding") else "right")
    for row in cell["schemes"]:
        scheme, is_baseline = row["scheme"], row["scheme"] == cell["baseline"]
        difference = compare_losses(runs.get(scheme, []), runs[cell["baseline"]], first)
        if difference is None:
            continue
        sent = count_bytes(runs[scheme])
        cells = [scheme, *(f"{sent[each] / base[each]:.3f}" for each in (*dimensions, ALL))]
        text = f"{difference.estimate:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
        cells.append("" if is_baseline else text)
        if first == 1:
            cells.append(f"{row['loss_valid']:.4f}")
            cells += [] if is_baseline else [row["loss"], f"{row['loss_p_apart_adjusted']:.3f}"]
        table.add_row(*cells)
    show_table(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT.json")
    parser.add_argument("--first-repeat", type=int, default=1, metavar="K")
    options = parse(parser)
    print("\n".join(head(Path(__file__), ["scipy"])), end="\n\n")
    for path in options.reports or STORED:
        try:
            show(path, options.first_repeat)
        except UserError as error:
            parser.error(str(error))


if __name__ == "__main__":
    main()
