"""Tests that a quantity is declared once, and that all outputs follow its declaration, including averages."""

import csv
import json
import sqlite3
import statistics
import subprocess
import sys
from contextlib import closing
from html import escape
from pathlib import Path

import pytest
from planted_results import Planted, change, log_lines
from test_tables_of_a_cell import STEPS, WARMUP, plant

from hpcbench.collect.submission import from_log
from hpcbench.report.measures import Measures, measure
from hpcbench.report.quantities import Quantity
from hpcbench.report.quantities.catalogue import CATALOGUE, list_exported
from hpcbench.report.quantities.resources import HOST_RANK
from hpcbench.report.quantities.speed import LOSS_TRAIN, SAMPLES, STEP_SECONDS
from hpcbench.report.quantities.traffic import CODED, EXPOSED, WIRE

DECLARED = """
from hpcbench.contract.events import MemoryUse
from hpcbench.report.quantities.catalogue import CATALOGUE
from hpcbench.report.quantities import BYTES, HIGHEST, Exported, Quantity

CATALOGUE.append(
    Quantity(
        key="device_buffer_bytes",
        head="buffers ({unit})",
        unit="B",
        meaning="What collectives have of their own on a GPU",
        scale=BYTES,
        over_runs=HIGHEST,
        better="lower",
        table="memory",
        group=4,
        exported=Exported("runs", "integer", MemoryUse),
    )
)
"""
REPORT = """
import sys
from pathlib import Path
from hpcbench.report.main import report

root, out = map(Path, sys.argv[1:])
exports = [out / "runs.jsonl", out / "all.sqlite"]
report([root], "md", out / "report.md", "memory", exports=exports)
for form in ("html", "csv", "json"):
    report([root], form, out / f"report.{form}")
"""


def test_a_declaration_is_all_that_a_new_quantity_needs(tmp_path: Path) -> None:
    """The event contains the quantity, but no output shows it until it is declared."""
    root, out = plant(tmp_path / "001"), tmp_path / "out"
    out.mkdir()
    for log in root.glob("runs/*mzhybrid/log.txt"):
        held = (3 if "r1" in str(log) else 5) * 2**20
        change(log, "memory", {"host_rank_bytes": 2**30, "host_bytes": 2**31, "device_buffer_bytes": held})
    subprocess.run([sys.executable, "-c", REPORT, str(root), str(out)], check=True, capture_output=True)
    files = [*out.glob("report.*"), out / "runs.jsonl"]
    assert len(files) == 5
    assert not any("device_buffer_bytes" in path.read_text().partition('"environment"')[0] for path in files)

    subprocess.run([sys.executable, "-c", DECLARED + REPORT, str(root), str(out)], check=True, capture_output=True)
    heads, _, *rows = (out / "report.md").read_text().partition("**Memory:")[2].splitlines()[2:6]
    assert heads.split(" | ")[-1] == "buffers (MiB) |"
    assert [row.split(" | ")[-1] for row in rows] == ["- |", "5.000 |"]
    about = "What collectives have of their own on a GPU. Of the run with the most. Lower is better."
    assert f'title="{escape(about)}">buffers (MiB)</th>' in (out / "report.html").read_text()
    table = {row["scheme"]: row for row in csv.DictReader((out / "report.csv").open())}
    assert [table[scheme]["device_buffer_bytes"] for scheme in ("baseline", "mzhybrid")] == ["", str(5 * 2**20)]
    (cell,) = json.loads((out / "report.json").read_text())["submissions"][0]["cells"]
    assert [scheme["device_buffer_bytes"] for scheme in cell["schemes"]] == [None, 5 * 2**20]
    kept_files = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert {row["run"]: row.get("device_buffer_bytes") for row in kept_files} == {
        "r1-baseline": None,
        "r1-mzhybrid": 3 * 2**20,
        "r2-baseline": None,
        "r2-mzhybrid": 5 * 2**20,
    }
    with closing(sqlite3.connect(out / "all.sqlite")) as base:
        columns = base.execute("SELECT \"table\", type, unit, meaning FROM columns WHERE name = 'device_buffer_bytes'")
        assert columns.fetchall() == [("runs", "integer", "B", "What collectives have of their own on a GPU")]


def test_declarations_are_whole() -> None:
    keys = [quantity.key for quantity in CATALOGUE]
    assert len(set(keys)) == len(keys)
    for quantity in CATALOGUE:
        assert (
            quantity.unit and quantity.head and quantity.meaning[0].isupper() and quantity.meaning[-1] not in ".;,"
        ), quantity.key
        assert quantity.of_schemes or (quantity.exported and not quantity.table), f"{quantity.key}: nothing says it"
    assert all(list_exported(table) for table in ("runs", "channels", "phases"))


def measured(path: Path, run: Planted) -> Measures:
    path.write_text("".join(f"{line}\n" for line in log_lines(run, steps=STEPS, warmup=WARMUP)))
    return measure(from_log(path))


@pytest.mark.parametrize("item", [STEP_SECONDS, SAMPLES, LOSS_TRAIN, EXPOSED], ids=lambda item: item.key)
def test_a_run_has_the_statistic_of_its_steps_that_is_declared(tmp_path: Path, item: Quantity) -> None:
    """The steps vary so much that median, mean and last value differ."""
    run = measured(tmp_path / "log.txt", Planted("mzhybrid", 1, 0.4, 2.7, noise=0.8))
    steps = run.run.log.steps if run.run.log else None
    assert steps is not None
    seconds = steps.column("seconds", first=WARMUP + 1)
    assert statistics.median(seconds) != pytest.approx(statistics.fmean(seconds), rel=1e-3)
    expected = {
        "step_seconds": ("mean of the steps", statistics.fmean(seconds)),
        "samples_per_s": ("work over time", 8 / statistics.fmean(seconds)),
        "loss_train": ("last step", steps.column("loss")[-1]),
        "exposed_s": ("mean of the steps", 0.2 * 0.4),
    }[item.key]
    assert item.over_steps == expected[0]
    assert item.compute(run) == pytest.approx(expected[1], rel=1e-9)


def test_a_scheme_has_the_average_of_its_runs_that_is_declared(tmp_path: Path) -> None:
    runs = [
        measured(tmp_path / f"{k}.txt", Planted("mzhybrid", k, seconds, 2.7, wire=wire, coded=wire))
        for k, (seconds, wire) in enumerate(((0.1, 0.2), (0.4, 0.3), (0.1, 0.7)), 1)
    ]
    assert SAMPLES.over_runs.description == "geometric mean of the runs"
    assert SAMPLES.average(runs) == pytest.approx((80 * 20 * 80) ** (1 / 3))
    assert WIRE.over_runs.description == "mean of the runs" and WIRE.average(runs) == pytest.approx(0.4)
    assert CODED.over_runs.description == "all runs together" and CODED.average(runs) == pytest.approx(0.4)
    assert HOST_RANK.over_runs.description == "of the run with the most" and HOST_RANK.average(runs) == 300_000_000
    assert SAMPLES.average([]) is None and WIRE.average([]) is None and HOST_RANK.average([]) is None
