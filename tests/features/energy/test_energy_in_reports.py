"""Tests of energy in reports: joules per sample, energy ratios over pairs, and notes about failing counters."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, change, write
from report_tables import entries, tables

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.tracking.seen import Seen, save
from hpcbench.contract.state import State
from hpcbench.present.document import Sentences
from hpcbench.report.build import build
from hpcbench.report.formats import csv_rows, json_document
from hpcbench.report.sections import read
from hpcbench.report.statistics import paired_ratio

STEPS, WARMUP, BATCH = 12, 2, 8


def plant(log: Path, joules: float | None, **changes: Any) -> None:
    """Insert an energy event before the last two lines of a log. The event covers the steps after the warm-up."""
    counter = {"host": "n1", "source": "rapl", "name": "package-0", "part": "processor", "refresh_s": 0.001}
    event = {
        "from_step": WARMUP + 1,
        "to_step": STEPS,
        "seconds": 5.0,
        "scope": "processors" if joules else None,
        "joules": joules,
        "node_joules": None,
        "gpu_joules": None,
        "processor_joules": joules,
        "counters": [{**counter, "joules": joules}],
        "problems": [],
        "wide": [],
        **changes,
    }
    change(log, "energy", event)


JOULES = {"baseline": (1000.0, 1100.0, 900.0), "naive-zfp8": (800.0, 913.0, 774.0)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    runs = [Planted(name, r + 1, 0.5, loss=2.0) for name in JOULES for r in range(3)]
    written = write(tmp_path / "001", runs, steps=STEPS, warmup=WARMUP)
    for name, joules_of_runs in JOULES.items():
        for r, joules in enumerate(joules_of_runs):
            plant(written / "runs" / f"r{r + 1}-{name}" / "log.txt", joules)
    return written


def build_energy_report(root: Path) -> Any:
    return build(read([root]).sections, ["energy"])


def list_notes(root: Path) -> list[str]:
    return [note for cell in read([root]).sections[0][1] for run in cell.runs for note in run.notes]


def test_joules_per_sample_and_the_energy_ratio_over_pairs_are_reported(root: Path) -> None:
    for name in ("comparison", "energy"):
        rows = entries(build_energy_report(root), name)
        per_sample = [joules / 10 / BATCH for joules in JOULES["naive-zfp8"]]
        mean = (per_sample[0] * per_sample[1] * per_sample[2]) ** (1 / 3)
        assert rows["naive-zfp8"]["joules_per_sample"].value == pytest.approx(mean)
        expected = paired_ratio(JOULES["naive-zfp8"], JOULES["baseline"])
        assert rows["naive-zfp8"]["energy_ratio"].value == pytest.approx(expected.estimate)
        assert rows["naive-zfp8"]["energy_ratio"].shown == (
            f"{expected.estimate:.2f} ({expected.low:.2f} to {expected.high:.2f})"
        )
    assert rows["baseline"]["energy_ratio"].value is None
    assert (
        rows["baseline"]["watts"].value == pytest.approx((200 * 220 * 180) ** (1 / 3))
        and rows["baseline"]["energy_scope"].shown == "processors"
    )
    assert rows["baseline"]["processor_joules_per_step"].value == pytest.approx((100 * 110 * 90) ** (1 / 3)), (
        "geometric mean"
    )


def test_csv_and_json_contain_the_energy(root: Path) -> None:
    sections = read([root]).sections
    rows = list(csv.DictReader(io.StringIO(csv_rows.write(sections))))
    assert float(rows[1]["energy_ratio"]) == pytest.approx(paired_ratio(*reversed(JOULES.values())).estimate)  # type: ignore[arg-type]
    assert rows[1]["energy_pairs"] == "3" and float(rows[0]["joules_per_step"]) == pytest.approx(99.67, abs=0.01)
    (cell,) = json_document.content(sections)["submissions"][0]["cells"]
    assert cell["schemes"][0]["joules_per_sample"] == pytest.approx(99.67 / 8, abs=0.01)


def test_joules_of_different_scopes_are_not_compared(root: Path) -> None:
    for r in range(3):
        log = root / "runs" / f"r{r + 1}-naive-zfp8" / "log.txt"
        log.write_text(log.read_text().replace('"scope": "processors"', '"scope": "nodes"'))
    rows = entries(build_energy_report(root), "energy")
    assert rows["naive-zfp8"]["energy_ratio"].value is None and rows["naive-zfp8"]["joules_per_sample"].value
    log = root / "runs" / "r1-naive-zfp8" / "log.txt"
    log.write_text(log.read_text().replace('"scope": "nodes"', '"scope": "processors"'))
    rows = entries(build_energy_report(root), "energy")
    assert rows["naive-zfp8"]["energy_scope"].shown == "nodes, processors"
    assert rows["naive-zfp8"]["joules_per_sample"].value is None, "no mean over different scopes"
    assert rows["naive-zfp8"]["energy_ratio"].shown.endswith("(1 pair)")


def test_reports_without_energy_have_no_energy_columns(tmp_path: Path) -> None:
    plain = write(tmp_path / "001", [Planted("baseline", 1, 0.5, loss=2.0), Planted("naive-zfp8", 1, 0.5, loss=2.0)])
    assert entries(build_energy_report(plain), "energy") == {}
    assert "joules_per_sample" not in entries(build_energy_report(plain), "comparison")["baseline"]


def test_the_method_names_the_reason_why_no_energy_was_counted(tmp_path: Path) -> None:
    plain = write(tmp_path / "001", [Planted("baseline", 1, 0.5, loss=2.0)], steps=STEPS, warmup=WARMUP)
    problem = "n1: no rapl counter: /sys/class/powercap/intel-rapl:0/energy_uj: Permission denied"
    plant(plain / "runs/r1-baseline/log.txt", None, counters=[], problems=[problem])
    assert list_notes(plain) == [], "a machine without counters needs no note"
    document = build_energy_report(plain)
    assert entries(document, "energy") == {}, "a table without values is left out"
    blocks = [block for chapter in document.chapters for block in chapter.blocks if isinstance(block, Sentences)]
    lines = [line for block in blocks if block.group == "Method" for line in block.lines]
    assert f"Tables without values in these runs: energy ({problem})." in lines


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"wide": ["n1: the job has 4 of 8 cores, so the counters may include the energy of other jobs"]},
            "4 of 8 cores",
        ),
        (
            {"problems": ["n1: rapl package-0: the counter decreased from 9 J to 3 J"], "scope": None},
            "decreased from 9 J",
        ),
        (
            {"seconds": 0.1},
            r"measured for 0\.1 s with counters that change every 0\.001 s: the error may be 2%",
        ),
    ],
)
def test_problems_of_counters_are_noted(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    plain = write(tmp_path / "001", [Planted("baseline", 1, 0.5, loss=2.0)], steps=STEPS, warmup=WARMUP)
    plant(plain / "runs/r1-baseline/log.txt", 50.0, **changes)
    (note,) = list_notes(plain)
    assert re.search(message, note)


@pytest.mark.parametrize(("counted", "is_too_small"), [("9000", False), ("1500", True)])
def test_the_energy_that_the_scheduler_measured_is_noted(root: Path, counted: str, is_too_small: bool) -> None:
    accounting = {"ConsumedEnergyRaw": counted, "ElapsedRaw": "60"}
    save(root, {"j0001-r1": Seen("p", JobStatus(State.COMPLETED, accounting=accounting), 0.0)})
    (table,) = tables(build_energy_report(root), "energy")
    (note,) = table.notes
    assert note.startswith(f"j0001-r1: the scheduler measured {int(counted)} J ({int(counted) / 60:.4g} W) for the job")
    assert "The counters of its runs measured 1800 J (180 W) of processors" in note
    assert ("more than the energy of the whole job" in note) == is_too_small
