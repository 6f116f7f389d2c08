"""Print the table of synchronization methods for a submission of studies/staleness.yaml.

    hpcbench submit studies/staleness.yaml --site sites/virtual-hosts.yaml --out results/staleness --wait
    python benchmarks/staleness.py results/staleness [--json FILE] [--tiny]

The output is the table `synchrony` of `hpcbench report`, with the provenance above it. The table compares
synchronization methods with the synchronous reference, in pairs of runs with the same seed and scheme. With ``--tiny``,
the script first submits a few short runs of the study.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import head, provenance
from tiny import parse

from hpcbench.errors import UserError
from hpcbench.present.document import Chapter, Document
from hpcbench.present.records import encode
from hpcbench.present.rich_text import show
from hpcbench.report import synchrony
from hpcbench.report.formats.json_document import content
from hpcbench.report.sections import read

STUDY = Path(__file__).parents[1] / "studies/staleness.yaml"
TINY = (
    *("train.steps=6", "train.warmup_steps=1", "train.eval_every=2", "train.eval_samples=4", "train.seq_len=32"),
    *("model.hidden=32", "model.layers=2", "repeats=1", "matrix.scheme=[baseline]"),
    "matrix.zip=[{train.schedule: [1f1b, pipedream, 1f1b, 1f1b], "
    "train.sync: [all-reduce, all-reduce, all-reduce, asp], "
    "layout.pp: [2, 2, 1, 1], layout.dp: [1, 1, 2, 2]}]",
)
"""Settings for a pipeline and for two replicas, synchronous and asynchronous."""


def submit(settings: Sequence[str], directory: Path) -> None:
    """Train a few runs of the study on this machine."""
    sets = [word for entry in settings for word in ("--set", entry)]
    command = [str(Path(sys.executable).with_name("hpcbench")), "submit", str(STUDY), "--site", "local"]
    done = subprocess.run([*command, "--out", str(directory), "--wait", *sets], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{STUDY}: {done.stderr.strip() or done.stdout.strip()}")


def answer(directory: Path) -> tuple[Document, list[dict[str, Any]]]:
    """Return the table of a submission, and its rows."""
    ((submission, cells),) = read([directory]).sections
    table = synchrony.tabulate_synchrony(submission, cells)
    if table is None:
        raise UserError(f"{directory}: every run waits for all others: use a submission of studies/staleness.yaml")
    (rows,) = (entry["synchrony"] for entry in content([(submission, cells)])["submissions"])
    return Document("", (Chapter("", "", (table,)),)), rows


def main() -> int:
    """Read the options, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="What waiting and old weights cost, of a submission.")
    parser.add_argument("directory", type=Path, nargs="?", help="what `hpcbench submit studies/staleness.yaml` made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the rows")
    options = parse(parser)
    try:
        if options.directory is None and not options.tiny:
            raise UserError("DIRECTORY: is missing: submit studies/staleness.yaml first, or use --tiny")
        with tempfile.TemporaryDirectory(prefix="staleness-") as scratch:
            if options.directory is None:
                submit(TINY, Path(scratch))
            page, rows = answer(options.directory or Path(scratch))
    except UserError as error:
        print(f"staleness.py: {error}", file=sys.stderr)
        return 2
    for line in head(Path(__file__)):
        print(line)
    show(page)
    if options.json:
        options.json.write_text(encode({"provenance": provenance(Path(__file__)), "rows": rows}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
