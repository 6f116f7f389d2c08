"""Tests of the export schema: its columns and its version."""

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

from hpcbench.contract.step_line import Step
from hpcbench.report.export import QUANTITIES, RECORDS, TABLES, VERSION

VERSIONS = Path(__file__).with_name("schema_versions.json")


def test_the_version_is_raised_when_columns_change() -> None:
    versions = json.loads(VERSIONS.read_text())
    assert max(map(int, versions)) == VERSION
    columns = [
        f"{name}.{column.name} {column.type} {column.unit}" for name in TABLES for column in TABLES[name].columns
    ]
    fingerprint = hashlib.sha256("\n".join(columns).encode()).hexdigest()
    assert versions[str(VERSION)] == fingerprint, (
        f"columns changed: raise export.VERSION, and add its fingerprint {fingerprint} to {VERSIONS.name}"
    )
    assert len(set(versions.values())) == len(versions)


def test_every_quantity_of_a_record_is_a_column() -> None:
    kinds = {field.name: "real" if float in get_args(field.type) else "integer" for field in fields(Step)}
    assert {column.name: column.type for column in QUANTITIES} == {
        name: kind for name, kind in kinds.items() if name not in ("line", "step", "steps")
    }
    assert {column.name: column.type for column in RECORDS.columns if column.name in kinds} == kinds


def test_columns_have_one_name_each_a_meaning_and_figures_a_unit() -> None:
    for table in TABLES.values():
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert column.meaning and "|" not in column.meaning
            assert column.unit or column.type != "real", f"{table.name}.{column.name}"
