"""Tests that the table of docs/reference/codecs.md agrees with the codecs."""

import re
from pathlib import Path

import numpy as np
import pytest

from hpcbench.bench.codecs import CodecRow, measure
from hpcbench.bench.data import make_values
from hpcbench.bench.device import Cpu
from hpcbench.codecs.library import kernels
from hpcbench.codecs.spec import FAMILIES, split

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "codecs.md").read_text(encoding="utf-8")
LINES = [[cell.strip() for cell in line.split("|")[1:]] for line in DOCS.splitlines() if line.startswith("| `")]
AS_MEASURED = {
    "int8:B": "int8:256",
    "int4:B": "int4:32",
    "int8:B:stochastic": "int8:256:stochastic",
    "int4:B/256": "int4:32/256",
    "int4:B/256:nonuniform": "int4:32/256:nonuniform",
    "int3:B/256": "int3:32/256",
    "int2:B/256": "int2:16/256",
    "sign:B": "sign:1024",
    "topk:F": "topk:0.01",
    "threshold:T": "threshold:0.001",
    "rowsparse:W": "rowsparse:128",
}
NAMES = [re.findall(r"`([^`]+)`", cells[0])[0] for cells in LINES]


@pytest.fixture(scope="module")
def rows() -> list[CodecRow]:
    x = make_values("gradient", 1 << 22, np.dtype(np.float32))
    names = [AS_MEASURED.get(name, name) for name in NAMES]
    return list(measure(names, x, Cpu(kernels()), 1).rows)


def test_no_family_is_missing() -> None:
    assert {split(name)[0] for name in NAMES} == set(FAMILIES)


def test_bits_and_errors(rows: list[CodecRow]) -> None:
    for cells, row in zip(LINES, rows, strict=True):
        assert float(cells[2]) == pytest.approx(row.bits_per_value, rel=0.02, abs=0.01), row.codec
        assert float(cells[3]) == pytest.approx(row.relative_rmse, rel=0.05), row.codec


def test_bounds(rows: list[CodecRow]) -> None:
    """A stated fraction of the largest value agrees with the codec's bound to within 2 %."""
    largest = float(np.abs(make_values("gradient", 1 << 22, np.dtype(np.float32))).max())
    seen = 0
    for cells, row in zip(LINES, rows, strict=True):
        description = re.match(r"(2\^-(\d+)|1/(\d+)) of the largest value", cells[4])
        if description:
            share = 2.0 ** -int(description[2]) if description[2] else 1 / int(description[3])
            assert row.error_bound == pytest.approx(share * largest, rel=0.02), row.codec
            seen += 1
        elif cells[4] == "0":
            assert row.error_bound == 0.0, row.codec
    assert seen == 18


def test_formats_are_where_the_table_says() -> None:
    named = set(re.findall(r"`(hb_\w+\.h)`", DOCS))
    assert len(named) == 11
    for name in named:
        assert (Path(__file__).resolve().parents[2] / "kernels" / name).is_file(), name
