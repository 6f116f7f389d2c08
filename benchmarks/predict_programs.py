"""Measure the accuracy of `hpcbench predict --program` on published runs, with a user's files and command.

    python benchmarks/predict_programs.py [--rows] [--every N] [--family WORD] [--tiny]

Each row of benchmarks/published/programs.csv becomes a study and a site file, and the command predicts its step time.
The output contains the errors in predicted step time for each family of runs, the number of measured times within the
printed interval, and the number of runs that the command wrongly rejects as too large for GPU memory.
"""

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenance import head
from tiny import parse
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.contract.training import Model
from hpcbench.predict.program import read_table

ROWS = Path(__file__).with_name("published") / "programs.csv"
GPUS = {
    "A100": ("NVIDIA A100-SXM4-80GB", 80),
    "H100": ("NVIDIA H100 80GB HBM3", 80),
    "H100-500W": ("NVIDIA H100 96GB HBM2e", 96),
}
SITE = """\
site: published
scheduler: {kind: slurm}
walltime: 1h
launcher: {kind: srun, visibility: all}
device: cuda
python: python3
checked: never
"""


@dataclass(frozen=True)
class Outcome:
    """A predicted row."""

    row: dict[str, str]
    seconds: float
    low: float
    high: float
    fits: bool
    memory_gb: float

    @property
    def measured(self) -> float:
        """Published step time in seconds."""
        return float(self.row["seconds"])

    @property
    def program(self) -> str:
        """Name of the program without options."""
        return self.row["program"].partition(",")[0]

    @property
    def error(self) -> float:
        """Relative error of the predicted step time."""
        return self.seconds / self.measured - 1

    @property
    def inside(self) -> bool:
        """Whether the measured step time is in the interval."""
        return self.low <= self.measured <= self.high


def describe_study(row: dict[str, str]) -> dict[str, Any]:
    """Return the study of a row."""
    number = {key: int(row[key]) for key in row if row[key].isdigit()}
    shape = {
        "kv_heads": number["kv_heads"],
        "mlp_width": number["mlp_width"],
        "activation": row["activation"],
        "norm": row["norm"],
    }
    model: dict[str, Any] = {key: number[key] for key in ("layers", "hidden", "heads", "vocab")}
    model |= {key: value for key, value in shape.items() if key in Model.model_fields}
    model |= {"positions": row["positions"], "tied": row["tied"] == "yes", "parallel_residual": False}
    vocab = 128 * number["tp"]
    model["vocab"] = -(-model["vocab"] // vocab) * vocab
    layout = {key: number[key] for key in ("tp", "pp", "cp", "dp", "chunks")}
    return {
        "study": "published",
        "model": model,
        "train": {
            "steps": 10,
            "warmup_steps": 1,
            "global_batch": number["global_batch"],
            "micro_batch": number["micro"],
            "seq_len": number["seq"],
            "precision": row["precision"],
            "zero": number["zero"],
            "recompute": row["recompute"],
            "sequence_parallel": row["sequence_parallel"] == "1",
            "schedule": "interleaved" if number["chunks"] > 1 else "1f1b",
        },
        "layout": layout,
        "ranks_per_node": number["per_node"],
        "matrix": {"scheme": ["baseline"]},
    }


def describe_site(row: dict[str, str]) -> str:
    """Return the site file of a row."""
    gpu, memory = GPUS[row["gpu"]]
    node = {"gpus": int(row["per_node"]), "gpu": gpu, "gpu_memory_gb": memory, "cores": 64, "sockets": 2}
    return f"{SITE}node: {json.dumps(node)}\nnetwork: {{description: published, bandwidth_gbit: {row['node_gbit']}}}\n"


def predict(row: dict[str, str], directory: Path) -> Outcome:
    """Predict a row with the command."""
    study, site, output = (directory / name for name in ("study.yaml", "site.yaml", "out.json"))
    study.write_text(json.dumps(describe_study(row)))
    site.write_text(describe_site(row))
    command = ["predict", str(study), "--site", str(site), "--program", row["program"], "--output", str(output)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    if result.exit_code not in (0, 1):
        raise SystemExit(f"{row['family']}, {row['gpus']} GPUs: {result.output}")
    (run,) = json.loads(output.read_text())["predictions"]
    seconds = run["step_seconds"]
    memory = run["memory"]
    return Outcome(
        row,
        seconds["value"],
        seconds["low"],
        seconds["high"],
        memory["fits"] is not False,
        memory["bytes"]["value"] / 1e9,
    )


@contextmanager
def without_family(family: str, outcomes: Sequence[Outcome]) -> Iterator[None]:
    """Fit the slowdown of a family's program on other families of the program.

    Without other families, remove the slowdown.
    """
    name = next(outcome.program for outcome in outcomes if outcome.row["family"] == family)
    others = [each for each in outcomes if each.program == name and each.row["family"] != family]
    properties = read_table()[name]
    before = properties.get("slowdown")
    ratios = [each.measured / each.seconds for each in others]
    properties["slowdown"] = (before or 1.0) * statistics.median(ratios) if ratios else None
    try:
        yield
    finally:
        properties["slowdown"] = before


def summarize(outcomes: Sequence[Outcome]) -> str:
    """Return the errors of some rows as text."""
    errors = [100 * outcome.error for outcome in outcomes]
    mean, worst = statistics.mean(map(abs, errors)), max(map(abs, errors))
    inside, refused = sum(outcome.inside for outcome in outcomes), sum(not outcome.fits for outcome in outcomes)
    return (
        f"{len(errors)} rows, mean {mean:.1f} %, signed {statistics.mean(errors):+.1f} %, worst {worst:.1f} %, "
        f"{inside} in the interval, {refused} called too large"
    )


def main() -> None:
    """Predict all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--every", type=int, default=1, help="take each N-th row")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--family", default="", help="only families whose name contains this")
    parser.add_argument("--table", type=Path, default=ROWS, help="table of runs in place of the committed one")
    parser.add_argument("--left-out", action="store_true", help="also print errors without the own family's runs")
    options = parse(parser, every=18)
    print(*head(Path(__file__)), sep="\n", flush=True)
    with options.table.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if options.family in row["family"]]
    families: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for row in rows[:: options.every]:
            outcome = predict(row, Path(directory))
            families.setdefault(row["family"], []).append(outcome)
            if options.rows:
                print(
                    f"  {row['family']}, {row['gpus']} GPUs: {outcome.seconds:.2f} s ({outcome.low:.2f} to "
                    f"{outcome.high:.2f}), {outcome.measured} s measured, {100 * outcome.error:+.1f} %, "
                    f"{outcome.memory_gb:.0f} GB",
                    flush=True,
                )
        everything = [outcome for outcomes in families.values() for outcome in outcomes]
        show(families)
        if options.left_out:
            print("with the slowdown of each program fitted on its other families, or without it:")
            for family, outcomes in families.items():
                with without_family(family, everything):
                    families[family] = [predict(outcome.row, Path(directory)) for outcome in outcomes]
            show(families)


def show(families: dict[str, list[Outcome]]) -> None:
    """Print the errors of each family and of all rows."""
    for family, outcomes in families.items():
        print(f"{family}: {summarize(outcomes)}")
    everything = [outcome for outcomes in families.values() for outcome in outcomes]
    print(f"all: {summarize(everything)}")
    worst = max(statistics.mean(abs(outcome.error) for outcome in outcomes) for outcomes in families.values())
    print(f"worst family: mean {100 * worst:.1f} %")


if __name__ == "__main__":
    main()
