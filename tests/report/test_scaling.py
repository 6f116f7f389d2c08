"""Tests of strong and weak scaling, compared with closed forms."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_results import Planted, change_settings, write

from hpcbench.present.document import Document, Table
from hpcbench.report.build import build
from hpcbench.report.sections import read

SIZES = (2, 4, 8, 16)
PLAIN = tuple((ranks, 1) for ranks in SIZES)
SERIAL, PARALLEL = 0.05, 0.8


def amdahl(ranks: int) -> float:
    """Return the step time in seconds, with a serial part."""
    return SERIAL + PARALLEL / ranks


def logarithmic(ranks: int) -> float:
    """Return the step time in seconds, with an all-reduce that grows with the logarithm of the number of ranks."""
    return 0.1 * (1 + 0.05 * math.log2(ranks))


def plant(
    root: Path, seconds: Callable[[int], float], batch: Callable[[int], int], sizes: tuple[tuple[int, int], ...] = PLAIN
) -> Path:
    """Return a study with one run per scheme and size.

    A size consists of the number of ranks and of tensor-parallel ranks. The codec takes twice as long as the baseline,
    and is not run at the smallest size.
    """
    runs = [
        Planted(scheme, 1, slower * seconds(ranks), 2.7, cell={"number": number})
        for number, (ranks, _) in enumerate(sizes)
        for scheme, slower in (("baseline", 1), ("mzhybrid", 2))
        if number or scheme == "baseline"
    ]
    write(root, runs)
    for run in runs:
        ranks, tp = sizes[run.cell["number"]]
        change_settings(
            *(root, run),
            ('"ranks": 8, "threads"', f'"ranks": {ranks}, "shape": {{"nodes": {ranks // 2}}}, "threads"'),
            ('"global_batch": 8', f'"global_batch": {batch(ranks)}'),
            ('"dp": 2, "tp": 2, "pp": 2', f'"dp": {ranks // tp}, "tp": {tp}, "pp": 1'),
        )
    return root


def document(root: Path) -> Document:
    return build(read([root]).sections)


def tables(root: Path) -> dict[str, Table]:
    (last,) = [chapter for chapter in document(root).chapters if "overview of" in chapter.title]
    return {block.name: block for block in last.blocks if isinstance(block, Table) and block.name != "overview"}


def column(table: Table, name: str, scheme: str) -> list[float | str | None]:
    index = [column.name for column in table.columns].index(name)
    return [row[index].value for row in table.rows if row[0].value == scheme]


def test_strong_scaling_follows_amdahls_law(tmp_path: Path) -> None:
    tables_by_kind = tables(plant(tmp_path / "001", amdahl, lambda ranks: 64))
    assert list(tables_by_kind) == ["strong-scaling"]
    table = tables_by_kind["strong-scaling"]
    assert "global batch 64" in table.title
    assert column(table, "ranks", "baseline") == list(SIZES)
    assert column(table, "nodes", "baseline") == [1, 2, 4, 8]
    speedups = [amdahl(2) / amdahl(ranks) for ranks in SIZES]
    assert column(table, "speedup", "baseline") == pytest.approx(speedups)
    efficiencies = [2 * amdahl(2) / (ranks * amdahl(ranks)) for ranks in SIZES]
    assert column(table, "efficiency", "baseline") == pytest.approx(efficiencies)


def test_a_scheme_is_measured_against_its_own_smallest_size(tmp_path: Path) -> None:
    table = tables(plant(tmp_path / "001", amdahl, lambda ranks: 64))["strong-scaling"]
    assert column(table, "ranks", "mzhybrid") == [4, 8, 16]
    efficiencies = [4 * amdahl(4) / (ranks * amdahl(ranks)) for ranks in (4, 8, 16)]
    assert column(table, "efficiency", "mzhybrid") == pytest.approx(efficiencies)


def test_weak_scaling_when_the_batch_grows_along(tmp_path: Path) -> None:
    tables_by_kind = tables(plant(tmp_path / "001", logarithmic, lambda ranks: 4 * ranks))
    assert list(tables_by_kind) == ["weak-scaling"]
    table = tables_by_kind["weak-scaling"]
    assert "4 per rank" in table.title
    efficiencies = [logarithmic(2) / logarithmic(ranks) for ranks in SIZES]
    assert column(table, "efficiency", "baseline") == pytest.approx(efficiencies)
    assert column(table, "speedup", "baseline") == pytest.approx(
        [ranks / 2 * part for ranks, part in zip(SIZES, efficiencies, strict=True)]
    )


def test_layouts_of_equal_size_make_series_of_their_own(tmp_path: Path) -> None:
    sizes = ((2, 1), (4, 1), (4, 2), (8, 2))
    table = tables(plant(tmp_path / "001", amdahl, lambda ranks: 64, sizes))["strong-scaling"]
    assert column(table, "ranks", "baseline") == [2, 4, 4, 8]
    efficiencies = [1.0, amdahl(2) / 2 / amdahl(4), 1.0, amdahl(4) / 2 / amdahl(8)]
    assert column(table, "efficiency", "baseline") == pytest.approx(efficiencies)


def test_a_layout_may_change_with_the_size(tmp_path: Path) -> None:
    sizes = ((2, 1), (4, 2), (8, 4))
    table = tables(plant(tmp_path / "001", amdahl, lambda ranks: 64, sizes))["strong-scaling"]
    assert column(table, "efficiency", "baseline")[2] == pytest.approx(amdahl(2) / 4 / amdahl(8))


@pytest.mark.parametrize("batch", [lambda ranks: 64 + ranks % 3, lambda ranks: 8 * ranks * ranks])
def test_sizes_without_a_common_batch_are_no_series(tmp_path: Path, batch: Callable[[int], int]) -> None:
    root = plant(tmp_path / "001", amdahl, batch, ((2, 1), (4, 1)))
    assert not tables(root)


def test_series_of_two_models_are_told_apart(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", amdahl, lambda ranks: 64, ((2, 1), (4, 1), (2, 1), (4, 1)))
    plan = json.loads((root / "submission.json").read_text())
    for run in plan["runs"]:
        number = run["cell"]["number"]
        run["cell"] = {"nodes": 1 + number % 2, "model": ("small", "large")[number // 2]}
        if number >= 2:
            log = root / run["path"] / "log.txt"
            log.write_text(log.read_text().replace('"layers": 4', '"layers": 8'))
    (root / "submission.json").write_text(json.dumps(plan))
    table = tables(root)["strong-scaling"]
    assert column(table, "ranks", "baseline") == [2, 4, 2, 4]
    assert column(table, "series", "baseline") == [
        *2 * ["model small, global batch 64"],
        *2 * ["model large, global batch 64"],
    ]


def test_one_size_has_no_scaling(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", amdahl, lambda ranks: 64, ((4, 1),))
    assert len(document(root).chapters) == 1


def test_a_size_whose_runs_failed_has_no_efficiency(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", amdahl, lambda ranks: 64)
    log = next(root.glob("runs/*number0-baseline/log.txt"))
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    table = tables(root)["strong-scaling"]
    assert column(table, "efficiency", "baseline")[0] is None
    assert column(table, "efficiency", "baseline")[1] == 1.0
