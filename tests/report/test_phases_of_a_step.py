"""Tests of step phases, host links and persistent memory in reports, against simulations and injected errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from exported import READ
from planted_results import Planted, change, write
from report_tables import table, tables
from schedule_oracle import simulate

from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import from_log, load
from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.present.document import Entry
from hpcbench.present.rich_text import write as as_text
from hpcbench.report.build import build
from hpcbench.report.export.files import ExportTarget
from hpcbench.report.measures import measure
from hpcbench.report.sections import read

STEPS, WARMUP, RANKS = 12, 2, 8
SPAN = {"from_step": WARMUP + 1, "to_step": STEPS}
SHARES = (STEPS - WARMUP) * RANKS
WORK = ("forward", "backward")
REDUCTION, OPTIMIZER, OTHER = 0.03, 0.02, 0.005


def stages(
    name: str, p: int, m: int, v: int, *, forward: float = 0.004, backward: float = 0.011
) -> list[dict[str, Any]]:
    """Return the measurements of a schedule whose messages take no time.

    Finished stages wait for the others in the reduction.
    """
    parts = p * v
    line = simulate(
        SCHEDULES[name], microbatches=m, forward_s=[forward] * parts, backward_s=[backward] * parts, stages=p
    )
    rows = []
    for stage, actions in enumerate(line.stages):
        work = {kind: sum(item.end - item.begin for item in actions if item.action.work == kind) for kind in WORK}
        passes = actions[-1].end
        row = {
            "forward_s": work["forward"],
            "backward_s": work["backward"],
            "bubble_s": passes - sum(work.values()),
            "reduction_s": REDUCTION + line.seconds - passes,
            "optimizer_s": OPTIMIZER,
            "other_s": OTHER,
        }
        rows.append({"stage": stage, **row, "step_s": sum(row.values())})
    return rows


def set_up(root: Path, **settings: Any) -> None:
    """Settings of all runs, as in their logs."""
    for log in root.glob("runs/*/log.txt"):
        lines = log.read_text().splitlines()
        asked = json.loads(next(line for line in lines if '"configuration"' in line[:30]))["run"]
        for name, values in settings.items():
            asked[name].update(values)
        change(log, "configuration", {"run": asked})


@pytest.mark.parametrize(
    ("name", "p", "m", "v"), [("gpipe", 4, 4, 1), ("1f1b", 2, 4, 1), ("1f1b", 4, 8, 1), ("interleaved", 4, 8, 2)]
)
def test_idle_is_what_the_schedule_makes_of_equal_parts(tmp_path: Path, name: str, p: int, m: int, v: int) -> None:
    """Unlike the closed form, the simulation uses the actions of the schedule."""
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    set_up(root, layout={"dp": 2, "tp": 4 // p, "pp": p, "chunks": v}, train={"global_batch": 4 * m, "micro_batch": 2})
    rows = stages(name, p, m, v)
    change(root / "runs/r1-baseline/log.txt", "phases", {**SPAN, "stages": rows})
    table_rows = table(root, "phases")["baseline"]
    assert table_rows["idle_part"].value == pytest.approx(table_rows["idle_by_schedule"].value, rel=1e-12)
    assert table_rows["idle_by_schedule"].value == pytest.approx((p - 1) / (v * m + p - 1), rel=1e-12)
    step = rows[0]["step_s"]
    for part in ("forward", "backward", "bubble", "reduction", "optimizer", "other"):
        mean = sum(row[f"{part}_s"] for row in rows) / p
        assert table_rows[f"{part}_s"].value == pytest.approx(mean, rel=1e-12)
        assert table_rows[f"{part}_part"].value == pytest.approx(mean / step, rel=1e-12)
    shown = sum(table_rows[f"{part}_part"].value for part in ("forward", "backward", "bubble", "reduction"))
    assert shown + (OPTIMIZER + OTHER) / step == pytest.approx(1, rel=1e-12)
    # the waiting time within a stage's own passes does not include the wait for other stages at the end
    assert table_rows["bubble_s"].value / step < table_rows["idle_part"].value


def test_a_slow_stage_is_idle_time_that_no_schedule_has(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    set_up(root, layout={"dp": 1, "tp": 4, "pp": 2}, train={"global_batch": 8, "micro_batch": 2})
    rows = stages("1f1b", 2, 4, 1)
    rows[1]["backward_s"] += 0.04
    rows[1]["step_s"] += 0.04
    rows[0]["bubble_s"] += 0.04
    rows[0]["step_s"] += 0.04
    change(root / "runs/r1-baseline/log.txt", "phases", {**SPAN, "stages": rows})
    table_rows = table(root, "phases")["baseline"]
    assert table_rows["idle_by_schedule"].value == 0.2
    assert table_rows["idle_part"].value == pytest.approx(
        1 - (2 * 4 * 0.015 + 0.04) / (2 * (5 * 0.015 + 0.04)), rel=1e-12
    )


def three_runs(root: Path) -> Path:
    """Return a submission with two schemes on two stages and traffic on two dimensions.

    The third repeat is an outlier.
    """
    runs = [Planted(scheme, repeat, 0.4, 2.7) for repeat in (1, 2, 3) for scheme in ("baseline", "zhybrid-16-8")]
    write(root, runs)
    set_up(root, train={"micro_batch": 1})
    for run in runs:
        log, slow = root / "runs" / run.id / "log.txt", {1: 1.0, 2: 1.1, 3: 30.0}[run.repeat]
        rows = stages("1f1b", 2, 4, 1, forward=0.004 * slow, backward=0.01 * slow)
        change(log, "phases", {**SPAN, "stages": rows})
        waited = {"TP": 0.01 * slow, "PP": 0.005, "DP": 0.02, "ZERO": 0.003, "EXACT": 0.001}
        channels = [
            {
                "dimension": name,
                "message_bytes": 10,
                "wire_bytes": 10,
                "exposed_s": seconds * SHARES / 2,
                "phase": phase,
            }
            for name, seconds in waited.items()
            for phase in ("FORWARD", "BACKWARD")
        ]
        change(log, "traffic", {"channels": channels})
    return root


def test_a_scheme_has_medians_and_the_dimensions_their_shares(tmp_path: Path) -> None:
    table_rows = table(three_runs(tmp_path / "001"), "phases")
    for scheme in ("baseline", "zhybrid-16-8"):
        steps = [stages("1f1b", 2, 4, 1, forward=0.004 * k, backward=0.01 * k)[0]["step_s"] for k in (1.0, 1.1, 30.0)]
        assert table_rows[scheme]["step_s"].value == pytest.approx(steps[1])
        assert table_rows[scheme]["forward_s"].value == pytest.approx(4 * 0.0044)
        assert table_rows[scheme]["exposed_tp_s"].value == pytest.approx(0.011)
        shares = [0.01 * k / step for k, step in zip((1.0, 1.1, 30.0), steps, strict=True)]
        assert table_rows[scheme]["exposed_tp_part"].value == pytest.approx(median(shares))
        assert table_rows[scheme]["exposed_dp_part"].value == pytest.approx(0.02 / steps[1])
    assert "exposed_sp_s" not in table_rows["baseline"]


def test_a_terminal_of_100_columns_shows_phases_and_shares_in_a_line_each(tmp_path: Path) -> None:
    document = build(read([three_runs(tmp_path / "001")]).sections, ["phases"])
    shown = as_text(document, 100)
    assert max(map(len, shown.splitlines())) <= 100
    heads = [line.split() for line in shown.splitlines() if line.startswith("scheme")][-4:]
    assert [head[1:3] for head in heads] == [["step", "(ms)"], ["forward", "backward"], *[["exposed", "TP"]] * 2]
    assert heads[1][-4:] == ["other", "idle", "by", "schedule"]


def test_one_stage_has_no_bubble(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    (row,) = stages("1f1b", 1, 4, 1)
    change(root / "runs/r1-baseline/log.txt", "phases", {**SPAN, "stages": [row]})
    table_rows = table(root, "phases")["baseline"]
    assert not {"bubble_s", "bubble_part", "idle_part", "idle_by_schedule"} & set(table_rows)
    assert table_rows["backward_s"].value == pytest.approx(0.044)


def damages() -> Iterator[tuple[str, Any]]:
    sound = stages("1f1b", 2, 4, 1)
    yield "nothing", []
    yield "no list", {"stage": 0}
    yield "a field is missing", [sound[0], {key: value for key, value in sound[1].items() if key != "other_s"}]
    for value in (None, "0.1", -0.1, float("nan"), float("inf"), 1e308, True, 0):
        yield f"{value!r} instead of a time", [{**sound[0], "step_s": value}, sound[1]]


@pytest.mark.parametrize(("what", "rows"), list(damages()))
def test_what_divides_no_step_is_no_table(tmp_path: Path, what: str, rows: Any) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    change(root / "runs/r1-baseline/log.txt", "phases", {**SPAN, "stages": rows})
    assert table(root, "phases") == {}, what


def test_phases_that_leave_something_out_are_named_with_their_line(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    log, rows = root / "runs/r1-baseline/log.txt", stages("1f1b", 2, 4, 1)
    change(log, "phases", {**SPAN, "stages": rows})
    assert measure(from_log(log)).notes == ()
    rows[1]["optimizer_s"] = 0.0
    change(log, "phases", {"stages": rows})
    line = next(i for i, text in enumerate(log.read_text().splitlines(), 1) if "phases" in text[:20])
    (note,) = measure(from_log(log)).notes
    assert f"{log}:{line}: the phases of stage 1 add up to 0.11 s per step, but its step took 0.13 s" in note


def test_the_hosts_links_and_what_lasts_in_memory(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted(scheme, 1, 0.4, 2.7) for scheme in ("baseline", "mzhybrid")])
    log = root / "runs/r1-mzhybrid/log.txt"
    change(log, "traffic", {"host_down_bytes": 4 * SHARES * 2**20, "host_up_bytes": SHARES * 2**20})
    change(log, "memory", {"device_parameters_bytes": 3 * 2**20, "host_optimizer_bytes": 2**21, "bogus_bytes": 7})
    crossed = table(root, "traffic")
    assert (crossed["mzhybrid"]["host_down_bytes"].value, crossed["mzhybrid"]["host_up_bytes"].value) == (2**22, 2**20)
    assert crossed["baseline"]["host_down_bytes"] == Entry()
    held = table(root, "memory")
    assert held["mzhybrid"]["device_parameters_bytes"] == Entry("3.000", 3 * 2**20)
    assert held["mzhybrid"]["host_optimizer_bytes"].value == 2**21
    assert "device_optimizer_bytes" not in held["mzhybrid"]
    change(log, "traffic", {"host_down_bytes": -5})
    assert "host_down_bytes" not in table(root, "traffic")["mzhybrid"]


def test_speed_names_the_formulas_of_its_flops(tmp_path: Path) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    log = root / "runs/r1-baseline/log.txt"
    expected_values = {
        "neox_flops_per_sample": 6.24e8,
        "flops_formulas": {"model": "A", "hardware": "B\x1b[2J", "neox": "C"},
    }
    change(log, "configuration", expected_values)
    document = build(read([root]).sections, ["speed"])
    (selected,) = tables(document, "speed")
    assert selected.notes[1:] == ("FLOP/s of the model: A.", "FLOP/s executed: B [2J.", "FLOP/s by NeoX: C.")
    assert table(root, "speed")["baseline"]["neox_flops_per_rank"].value == pytest.approx(6.24e8 / 0.4)


@pytest.mark.parametrize("form", [".csv", ".jsonl", ".parquet", ".sqlite"])
def test_every_form_of_the_export_has_a_row_a_stage(tmp_path: Path, form: str) -> None:
    runs = [Planted("baseline", repeat, 0.4, 2.7) for repeat in (1, 2)]
    root = write(tmp_path / "001", runs)
    rows, log = stages("1f1b", 2, 4, 1), root / "runs/r2-baseline/log.txt"
    change(log, "phases", {**SPAN, "stages": rows})
    change(log, "traffic", {"host_up_bytes": 2**60})
    change(log, "memory", {"host_residuals_bytes": 12})
    for name in ("phases", "runs"):
        ExportTarget.of(tmp_path / f"{name}{form}").write([load(root, jobs_of(root))])
    result = READ[form](tmp_path / f"phases{form}", "phases")
    assert [{key: entry[key] for key in ("from_step", "to_step", *rows[0])} for entry in result] == [
        {**SPAN, **row} for row in rows
    ]
    assert {(entry["repeat"], entry["file"]) for entry in result} == {(2, str(log))}
    first, second = READ[form](tmp_path / f"runs{form}", "runs")
    assert (second["host_up_bytes"], second["host_residuals_bytes"]) == (2**60, 12)
    assert not {"host_up_bytes", "host_residuals_bytes", "hardware_flops_per_sample"} & set(first)
