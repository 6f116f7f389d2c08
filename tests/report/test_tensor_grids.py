"""Tests of tensor grid reports: traffic by axis, and the scaling of each tensor-parallel mode."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, change_settings, write
from report_tables import tables

from hpcbench.present.document import Document, Figure, Table
from hpcbench.report.build import DEFAULT, build
from hpcbench.report.sections import read

CASES = [(1, "1d", 8), (4, "1d", 8), (4, "2d", 8), (8, "1d", 8), (8, "3d", 8), (1, "1d", 1), (8, "3d", 16)]
"""Ranks, mode and samples: strong scaling with 8 samples, and two sizes with other numbers of samples."""
SECONDS = {(1, "1d"): 0.8, (4, "1d"): 0.4, (4, "2d"): 0.5, (8, "1d"): 0.25, (8, "3d"): 0.2}


def plant(root: Path, cases: Sequence[tuple[int, str, int]] = CASES, chunks: Sequence[int] = (1,)) -> Path:
    """Return a study of the cases, once for each number of pipeline chunks."""
    planned = [(case, count) for count in chunks for case in cases]
    runs = [
        Planted(scheme, 1, SECONDS[case[:2]], 2.7, cell={"number": number})
        for number, (case, _) in enumerate(planned)
        for scheme in ("baseline", "mzhybrid")
    ]
    write(root, runs)
    for run in runs:
        (ranks, mode, batch), count = planned[run.cell["number"]]
        change_settings(
            *(root, run),
            ('"ranks": 8, "threads"', f'"ranks": {ranks}, "threads"'),
            ('"global_batch": 8', f'"global_batch": {batch}, "micro_batch": {batch}'),
            ('"dp": 2, "tp": 2, "pp": 2', f'"dp": 1, "tp": {ranks}, "pp": 1, "tensor": "{mode}", "depth": 1'),
            ('"chunks": 1', f'"chunks": {count}'),
        )
        log = root / "runs" / run.id / "log.txt"
        log.write_text("".join(f"{on_grid(line, mode, run.seconds)}\n" for line in log.read_text().splitlines()))
    return root


def on_grid(line: str, mode: str, seconds: float) -> str:
    """Divide an event's traffic between two axes, with a third of it on axis i, and add the phases of the step."""
    if '"traffic"' not in line or mode == "1d":
        return line
    event = json.loads(line)
    (channel,) = event["channels"]
    numbers = ("message_bytes", "wire_bytes", "exposed_s", "hidden_s", "transfer_s")
    parts = [
        {**channel, "dimension": "TP", "axis": axis, **{key: channel[key] * share / 3 for key in numbers}}
        for axis, share in (("i", 1), ("j", 2))
    ]
    for part in parts:
        part |= {key: round(part[key]) for key in numbers[:2]}
    times = {
        "forward_s": 0.25,
        "backward_s": 0.5,
        "bubble_s": 0.0,
        "reduction_s": 0.1,
        "optimizer_s": 0.1,
        "other_s": 0.05,
    }
    stage = {"stage": 0, **{key: value * seconds for key, value in times.items()}, "step_s": seconds}
    span = {key: event[key] for key in ("from_step", "to_step")}
    return json.dumps({**event, "channels": parts}) + "\n" + json.dumps({"event": "phases", **span, "stages": [stage]})


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    root = plant(tmp_path_factory.mktemp("grids") / "001")
    return build(read([root]).sections, ["axes", *DEFAULT], figures=True)


def rows(table: Table) -> list[dict[str, Any]]:
    return [{c.name: entry.value for c, entry in zip(table.columns, row, strict=True)} for row in table.rows]


def test_traffic_is_told_by_axis(document: Document) -> None:
    table_rows = [rows(table) for table in tables(document, "axes")]
    assert len(table_rows) == 3, "the cells with a grid, and no others"
    for lines in table_rows:
        baseline = {line["axis"]: line for line in lines if line["scheme"] == "baseline"}
        assert list(baseline) == ["i", "j"]
        assert baseline["j"]["message_bytes"] == pytest.approx(2 * baseline["i"]["message_bytes"], rel=1e-5)
        assert baseline["j"]["exposed_s"] == pytest.approx(2 * baseline["i"]["exposed_s"])
        assert baseline["i"]["wire_over_message"] == pytest.approx(1, rel=1e-5)
    assert [line["message_bytes"] for line in table_rows[0] if line["axis"] == "j"] == [
        pytest.approx(1e6 / 6, rel=1e-5)
    ] * 2


def test_each_mode_has_a_series_that_begins_with_one_rank(document: Document) -> None:
    (table,) = tables(document, "strong-scaling")
    table_rows = {(row["series"], row["ranks"]): row for row in rows(table) if row["scheme"] == "baseline"}
    wanted = {(f"tensor {mode}, global batch 8", ranks) for ranks, mode in (*SECONDS, (1, "2d"), (1, "3d"))}
    assert table_rows.keys() == wanted
    eight = table_rows["tensor 3d, global batch 8", 8]
    assert eight["speedup"] == pytest.approx(0.8 / 0.2, rel=0.05) and eight["efficiency"] == pytest.approx(
        0.5, rel=0.05
    )
    assert eight["pass_seconds"] == pytest.approx(0.75 * 0.2 / 8)
    assert eight["rank_bytes"] == pytest.approx(1e6 / 8, rel=1e-5)
    assert eight["host_rank_bytes"] == 300_000_000


def test_layouts_that_differ_in_a_rare_field_have_series_of_their_own(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", [(1, "1d", 8), (4, "2d", 8)], chunks=(1, 2))
    (table,) = tables(build(read([root]).sections, DEFAULT), "strong-scaling")
    table_rows = sorted((row["series"], row["ranks"]) for row in rows(table) if row["scheme"] == "baseline")
    wanted = [(f"tensor 2d chunks {count}, global batch 8", ranks) for count in (1, 2) for ranks in (1, 4)]
    assert table_rows == wanted


def test_weak_scaling_is_of_a_batch_a_rank(document: Document) -> None:
    (table,) = tables(document, "weak-scaling")
    table_rows = {(row["series"], row["ranks"]) for row in rows(table)}
    assert table_rows == {(f"tensor {mode}, batch 1 per rank", ranks) for mode in ("1d", "3d") for ranks in (1, 8)}


def test_the_figure_has_the_modes(document: Document) -> None:
    blocks = [block for chapter in document.chapters for block in chapter.blocks]
    assert any(isinstance(block, Figure) and block.name == "scaling" for block in blocks)
