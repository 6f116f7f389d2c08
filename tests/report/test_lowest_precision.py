"""Tests of the lowest number formats of messages and matrix products, and of step times in exported rows."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcbench.report.export.files import ExportTarget
from hpcbench.report.sections import read

KEYS = ("lowest_numerical_precision_in_comm", "lowest_numerical_precision_in_linear")


def channel(codec: str, wire: float, coded: float = 1.0, dtype: str | None = None) -> dict[str, Any]:
    row = {"dimension": "DP", "codec": codec, "message_bytes": 1000, "coded_bytes": int(1000 * coded)}
    return {**row, "wire_bytes": int(1000 * wire), **({"dtype": dtype} if dtype else {})}


def exported_run(tmp_path: Path, *lines: str) -> dict[str, Any]:
    log = tmp_path / "a.log"
    log.write_text("\n".join([*lines, ""]))
    path = tmp_path / "runs.sqlite"
    ExportTarget.of(path).write([section[0] for section in read([log]).sections])
    base = sqlite3.connect(path)
    base.row_factory = sqlite3.Row
    return dict(base.execute("SELECT * FROM runs").fetchone())


@pytest.mark.parametrize(
    ("precision", "channels", "comm"),
    [
        ("fp32", [channel("none", 1.0, 0)], "fp32"),
        ("bf16", [channel("none", 1.0, 0)], "bfloat16"),
        ("bf16", [channel("none", 1.0, 0, "fp32")], "fp32"),
        ("bf16", [channel("int8:256", 0.52)], "int8"),
        ("fp32", [channel("bf16", 0.5), channel("none", 1.0, 0)], "bfloat16"),
        ("fp32", [channel("fp8e4m3", 0.25), channel("bf16", 0.5)], "fp8"),
        ("fp32", [channel("rotate64+int4:32", 0.16), channel("int8:256", 0.25)], "int4"),
        ("fp32", [channel("zfp:8", 0.25)], "zfp:8"),
        ("fp32", [channel("mpc", 0.4)], "fp32"),
        ("fp32", [channel("int8:256", 1.0, 0)], "fp32"),
        ("fp32", [channel("int8:256", 0.6, 0.5)], "int8"),
        ("fp32", [], None),
    ],
)
def test_the_lowest_format_of_messages(
    tmp_path: Path, precision: str, channels: list[dict[str, Any]], comm: str | None
) -> None:
    settings = {"event": "configuration", "run": {"train": {"precision": precision}}}
    events = [{"event": "start"}, settings, {"event": "traffic", "channels": channels}]
    row = exported_run(tmp_path, *map(json.dumps, events))
    linear = {"bf16": "bfloat16"}.get(precision, precision)
    assert tuple(row[key] for key in KEYS) == (comm, linear)


def test_formats_in_logs_of_mlperf(tmp_path: Path) -> None:
    values = {KEYS[0]: "bfloat16", KEYS[1]: "mxfp4", "lowest_numerical_precision_in_attn": "fp8"}
    event = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME"}
    rows = [{**event, "key": key, "value": value, "metadata": {"file": "a.py"}} for key, value in values.items()]
    rows += [
        {**event, "key": "tracked_stats", "value": {"train_step_time": 2.0}, "metadata": {"step": step}}
        for step in (10, 20, 30)
    ]
    row = exported_run(tmp_path, *(":::MLLOG " + json.dumps(row) for row in rows))
    assert tuple(row[key] for key in KEYS) == ("bfloat16", "mxfp4")
    assert row["dialect"] == "MLPerf"


def test_mean_and_percentiles_of_step_times(tmp_path: Path) -> None:
    """With 101 counted steps of 1 to 2 s after two warm-up steps, the inclusive percentiles are exact."""
    steps = [f"step {k}/103 | time {9.0 if k < 3 else 1 + (k - 3) / 100} s |" for k in range(1, 104)]
    settings = {"event": "configuration", "run": {"train": {"warmup_steps": 2}}}
    row = exported_run(tmp_path, json.dumps({"event": "start"}), json.dumps(settings), *steps)
    times = [row[f"step_seconds_{name}"] for name in ("mean", "p50", "p95", "p99")]
    assert times == pytest.approx([1.5, 1.5, 1.95, 1.99])
