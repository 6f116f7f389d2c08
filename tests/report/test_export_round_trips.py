"""Tests that exported values are bitwise identical to the logged values, in every kind of file."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from exported import READ, exact
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planted_results import Planted, write

from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import from_log, load
from hpcbench.report.export import VERSION
from hpcbench.report.export.files import ExportTarget
from hpcbench.report.sections import gather

FORMS = sorted(READ)
REAL = st.floats(allow_nan=True, allow_infinity=True).map(lambda value: value + 0.0)  # SQLite has no negative zero
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
BYTES = st.integers(0, 2**63 - 1) | st.sampled_from([2**53 + 1, 2**63 - 1])
WORDS = st.text(st.characters(codec=None), min_size=1, max_size=30) | st.sampled_from(
    ["=1+1", "+x", "-x", "@x", "'=x", "''", 'a "b", c', "line\nend\r\n", "\0", "\ud800", "\x1b[2J", "naïve 漢", " x "]
)
STEP = st.fixed_dictionaries(
    {},
    optional={
        "loss": REAL,
        "time": POSITIVE,
        "hardware": POSITIVE,
        "lr": REAL,
        "grad-norm": REAL,
        "message": BYTES,
        "wire": BYTES,
        "skipped": BYTES,
    },
).filter(bool)
UNITS = {"time": " s", "hardware": " FLOPS/rank", "message": " B", "wire": " B"}
NAMES = {
    "loss": "loss",
    "time": "seconds",
    "hardware": "hardware_flops_per_rank",
    "lr": "lr",
    "grad-norm": "gradient_norm",
    "message": "message_bytes",
    "wire": "wire_bytes",
    "skipped": "skipped",
}


def plain(message: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in message)


def export(path: Path, log: Path) -> None:
    ExportTarget.of(path).write(gather([(log, from_log(log))]))


@settings(max_examples=40, deadline=None)
@example(
    steps=[{"loss": math.nan, "lr": math.inf, "wire": 2**63 - 1}, {"loss": -math.inf, "message": 2**53 + 1}],
    names={"study": "=1+1", "run": "\0\r\n", "site": '"', "scheme": "\ud800", "pairing": "'-x"},
    cell={"a": "\ud800\0"},
    losses=[math.nan, math.inf],
    channel={"dimension": "@x", "sampled_error": math.nan, "encode_s": -math.inf, "message_bytes": 2**53 + 1},
)
@given(
    steps=st.lists(STEP, min_size=1, max_size=4),
    names=st.fixed_dictionaries(dict.fromkeys(("study", "run", "site", "scheme", "pairing"), WORDS)),
    cell=st.dictionaries(WORDS, WORDS | st.integers(), max_size=2),
    losses=st.lists(REAL, max_size=2),
    channel=st.fixed_dictionaries(
        {"dimension": WORDS},
        optional={"codec": WORDS, "message_bytes": BYTES, "encode_s": REAL, "sampled_error": REAL | st.none()},
    ),
)
def test_every_form_gives_back_what_the_log_holds(
    steps: list[dict[str, Any]],
    names: dict[str, str],
    cell: dict[str, Any],
    losses: list[float],
    channel: dict[str, Any],
) -> None:
    lines = [json.dumps({"event": "start", **names, "repeat": 3, "cell": cell})]
    for k, step in enumerate(steps, 1):
        parts = [f"{key} {value!r}{UNITS.get(key, '')}" for key, value in step.items()]
        lines.append(" | ".join([f"step {k}/9", *parts, ""]))
    lines += [json.dumps({"event": "evaluation", "step": 4, "split": "valid", "loss": loss}) for loss in losses]
    lines.append(json.dumps({"event": "traffic", "from_step": 1, "to_step": 2, "channels": [channel]}))
    lines.append(json.dumps({"event": "end", "state": "completed", "steps": len(steps)}))
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "a.log"
        log.write_text("\n".join([*(line.rstrip() for line in lines), ""]))
        identity = {"schema_version": VERSION, "dialect": "hpcbench", "repeat": 3, "cell": cell, "state": "completed"}
        identity |= {key: plain(text) for key, text in names.items()}
        records: list[dict[str, Any]] = [
            {"event": "step", "step": k, "line": k + 1, **{NAMES[key]: value for key, value in step.items()}}
            for k, step in enumerate(steps, 1)
        ]
        records += [
            {"event": "evaluation", "step": 4, "split": "valid", "loss": loss, "line": len(steps) + i}
            for i, loss in enumerate(losses, 2)
        ]
        expected_values = {key: plain(value) if isinstance(value, str) else value for key, value in channel.items()}
        channels = [{"from_step": 1, "to_step": 2, "line": len(steps) + len(losses) + 2, **expected_values}]
        for form in FORMS:
            for table, rows in (("records", [{"steps": 9, **row} for row in records]), ("channels", channels)):
                path = Path(name) / f"{table}{form}"
                export(path, log)
                wanted = [{**identity, "file": str(log), **row} for row in rows]
                wanted = [{key: value for key, value in row.items() if value is not None} for row in wanted]
                assert exact(READ[form](path, table)) == exact(wanted)


@pytest.mark.parametrize("form", FORMS)
def test_a_number_beyond_64_bits_is_absent_and_one_of_64_exact(tmp_path: Path, form: str) -> None:
    log = tmp_path / "a.log"
    counts = (2**63 - 1, 2**63, 10**40, True, 2.5, 3.0, "7")
    channels = [{"dimension": "DP", "message_bytes": count} for count in counts]
    events = [{"event": "start"}, {"event": "traffic", "channels": channels}]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    export(tmp_path / f"channels{form}", log)
    selected = [row.get("message_bytes") for row in READ[form](tmp_path / f"channels{form}", "channels")]
    assert selected == [2**63 - 1, None, None, None, None, 3, None]


@pytest.mark.parametrize("form", FORMS)
def test_a_run_a_row_with_what_became_of_it_and_what_it_was_told(tmp_path: Path, form: str) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7), Planted("mzhybrid", 1, 0.1, 2.7)])
    (root / "runs/r1-mzhybrid/log.txt").unlink()
    (root / "runs/r1-mzhybrid/err.txt").write_text("ValueError: =cmd\x07\n")
    marker = root / "runs/r1-mzhybrid/status.json"
    marker.write_text(marker.read_text().replace('"exit": 0', '"exit": 1'))
    path = tmp_path / f"runs{form}"
    ExportTarget.of(path).write([load(root, jobs_of(root))])
    first, second = READ[form](path, "runs")
    assert (first["state"], first["hosts"]) == ("completed", ["n1"])
    assert (first["layers"], first["tp"], first["ranks"]) == (4, 2, 8)
    assert first["settings"]["train"]["warmup_steps"] == first["warmup_steps"] == 2
    assert first["submission"] == str(root) and first["file"] == str(root / "runs/r1-baseline/log.txt")
    assert (first["exit_status"], first["started"]) == (0, "2026-11-21T06:30:00Z")
    assert (second["state"], second["exit_status"]) == ("failed", 1)
    assert "ValueError: =cmd" in second["reason"] and second["reason_source"].endswith("err.txt:1")
    assert not {"file", "steps_logged", "mpi", "dialect"} & set(second)
    assert second["rules"][0]["codec"] == "zfp:8"


@pytest.mark.parametrize("form", FORMS)
def test_wire_bytes_that_nobody_knows_are_absent(tmp_path: Path, form: str) -> None:
    plain = Planted("baseline", 1, 0.2, 2.7)
    library_run = Planted("library", 1, 0.2, 2.7, environment={"MV2_USE_CUDA": "1"})
    root = write(tmp_path / "001", [plain, library_run])
    for table in ("records", "channels"):
        path = tmp_path / f"{table}{form}"
        ExportTarget.of(path).write([load(root, jobs_of(root))])
        rows = [row for row in READ[form](path, table) if row.get("event", "step") == "step"]
        assert {row["scheme"] for row in rows if "wire_bytes" in row} == {"baseline"}
        assert all("message_bytes" in row for row in rows)


def test_a_database_holds_all_tables_their_version_and_units(tmp_path: Path) -> None:
    import sqlite3

    root = write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7)])
    path = tmp_path / "whatever.db"
    ExportTarget.of(path).write([load(root, jobs_of(root))])
    base = sqlite3.connect(path)
    assert base.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchall() == [(str(VERSION),)]
    assert base.execute("SELECT DISTINCT unit FROM columns WHERE name = 'seconds'").fetchall() == [("s",)]
    assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    counts = [base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("records", "runs", "channels")]
    assert counts == [13, 1, 1]
    asked = (
        Path(__file__).parents[2].joinpath("docs/reference/records.md").read_text().split("```sql\n")[1].split("```")[0]
    )
    assert base.execute(asked).fetchall() == [("baseline", pytest.approx(0.2))]
    plan = base.execute("EXPLAIN QUERY PLAN SELECT * FROM records WHERE file = 'x'").fetchone()[3]
    assert "records_by_file" in plan
    base.close()


def test_a_table_of_parquet_says_its_units_and_version(tmp_path: Path) -> None:
    import pyarrow.parquet

    root = write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7)])
    path = tmp_path / "records.parquet"
    ExportTarget.of(path).write([load(root, jobs_of(root))])
    schema = pyarrow.parquet.read_schema(path)
    assert schema.metadata[b"schema_version"] == str(VERSION).encode() and schema.metadata[b"table"] == b"records"
    assert schema.field("wire_bytes").metadata[b"unit"] == b"B"
