"""Tests of the export schema: its columns, its version, and its documentation page."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

from hpcbench.contract.step_line import Step
from hpcbench.report.export import QUANTITIES, RECORDS, TABLES, VERSION, compute_fingerprint, describe_tables

VERSIONS = Path(__file__).with_name("schema_versions.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "records.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def test_the_version_is_raised_when_columns_change() -> None:
    versions = json.loads(VERSIONS.read_text())
    assert max(map(int, versions)) == VERSION
    assert versions[str(VERSION)] == compute_fingerprint(), (
        f"columns changed: raise export.VERSION, and add its fingerprint {compute_fingerprint()} to {VERSIONS.name}"
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


def test_the_page_says_what_the_schema_says() -> None:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    _, _, after = remainder.partition(END)
    page = f"{before}{BEGIN}\n{describe_tables()}\n{END}{after}"
    if os.environ.get("HPCBENCH_REGOLD"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "HPCBENCH_REGOLD=1 writes it"
    assert f"\nVersion {VERSION}. " in before


def test_the_export_needs_nothing_heavy() -> None:
    code = (
        "import sys, hpcbench.report.export.files;"
        "print([m for m in ('torch', 'numpy', 'mpi4py', 'cupy', 'matplotlib', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
