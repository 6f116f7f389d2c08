"""Tests of a study with several cells. The overview comes first. Properties that all cells share are stated once."""

from collections import Counter
from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import entries

from hpcbench.present import rich_text
from hpcbench.present.document import Document, Sentences
from hpcbench.report.build import DEFAULT, build
from hpcbench.report.sections import read
from hpcbench.report.tables import METHOD

KEY = "train.global_batch"


def sweep(root: Path, sizes: tuple[int, ...] = (8, 16, 32)) -> Document:
    """Return cells in which the scheme is 2, 4 and 8 times as fast as the baseline."""
    runs = [
        Planted(scheme, k, seconds * (1 + ((k + i) % 3) / 1000), 2.7, cell={KEY: size})
        for number, size in enumerate(sizes, 1)
        for k in (1, 2, 3)
        for i, (scheme, seconds) in enumerate((("baseline", 0.4), ("naive-zfp8", 0.4 / 2**number)))
    ]
    return build(read([write(root, runs)]).sections, (*DEFAULT, METHOD))


def test_the_overview_has_gain_interval_and_verdict_of_each_cell_and_comes_first(tmp_path: Path) -> None:
    document = sweep(tmp_path)
    first = document.chapters[0]
    assert first.title == "demo on local: overview of 3 cells"
    rows = entries(document, "overview")
    assert list(rows) == [f"{KEY} {size}" for size in (8, 16, 32)]
    for gain, row in zip((2, 4, 8), rows.values(), strict=True):
        assert row["scheme"].value == "naive-zfp8"
        assert row["speed_ratio"].value == pytest.approx(gain, rel=0.01)
        low, high = row["speed_ratio"].shown.partition("(")[2].rstrip(")").split(" to ")
        assert float(low) <= gain * 1.01 and float(high) >= gain * 0.99
        assert row["verdict"].value == "faster, loss no worse"
    assert [chapter.title.split(", ")[2] for chapter in document.chapters[1:]] == list(rows)


SLOWER, FASTER, SCATTERED = (2.0, 2.01, 2.02), (0.5, 0.501, 0.502), (0.5, 1.0, 2.0)
"""Times of a step with compression, in units of the baseline's."""


@pytest.mark.parametrize(
    ("cells", "answer"),
    [
        ((FASTER, SLOWER), "Yes. Compression pays in 1 of 2 cells. The gain is largest with naive-zfp8 in "),
        ((SLOWER, SLOWER), "No. Compression does not pay in any of 2 cells."),
        ((SLOWER, SCATTERED), "Inconclusive. The gain of compression is not significant in any of 2 cells."),
    ],
)
def test_the_overview_begins_with_the_verdict_over_all_cells(
    cells: tuple[tuple[float, ...], ...], answer: str, tmp_path: Path
) -> None:
    runs = [
        Planted(scheme, k, seconds, 2.7, cell={KEY: size})
        for size, times in zip((8, 16), cells, strict=True)
        for k, time in enumerate(times, 1)
        for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.4 * time))
    ]
    document = build(read([write(tmp_path, runs)]).sections)
    (first, *_) = [block for block in document.chapters[0].blocks if isinstance(block, Sentences)]
    assert first.lines[0].startswith(answer)


def test_footnotes_of_a_sweep_are_said_once(tmp_path: Path) -> None:
    document = sweep(tmp_path)
    lines = [
        line
        for chapter in document.chapters
        for block in chapter.blocks
        if isinstance(block, Sentences)
        for line in block.lines
    ]
    twice = {line for line, count in Counter(lines).items() if count > 1}
    assert not any(line.startswith(("[", "All findings", "Schemes are compared", "For scale")) for line in twice)
    overview = [line for block in document.chapters[0].blocks if isinstance(block, Sentences) for line in block.lines]
    assert any(line.startswith("[a] Fewer than 5 pairs") for line in overview)
    assert any(
        line.startswith("Schemes are compared over pairs of runs with the same seed (number of pairs: 3)")
        for line in overview
    )
    marks = {row["verdict"].shown.partition("[")[2] for row in entries(document, "overview").values()}
    letters = {line[1] for line in overview if line.startswith("[")}
    assert set("".join(marks)) - {"]"} == letters


def test_letters_mean_the_same_in_all_cells(tmp_path: Path) -> None:
    """Only the second cell contains a pair whose counted steps differ, and only the first contains five pairs."""
    runs = [
        Planted(scheme, k, seconds, 2.7, cell={KEY: size})
        for size, pairs in ((8, 5), (16, 3))
        for k in range(1, pairs + 1)
        for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.2))
    ]
    document = build(read([write(tmp_path, runs)]).sections, (*DEFAULT, METHOD))
    explained = {
        line[1]: line for block in document.chapters[0].blocks if isinstance(block, Sentences) for line in block.lines
    }
    few = next(letter for letter, line in explained.items() if line.startswith("[") and "Fewer than 5 pairs" in line)
    marks = {cell: row["verdict"].shown.partition("[")[2] for cell, row in entries(document, "overview").items()}
    assert few not in marks[f"{KEY} 8"] and few in marks[f"{KEY} 16"]
    assert set(marks[f"{KEY} 8"]) < set(marks[f"{KEY} 16"])


def test_a_study_of_one_cell_has_no_overview_and_its_footnotes_below_its_answer(tmp_path: Path) -> None:
    document = sweep(tmp_path, (8,))
    assert len(document.chapters) == 1
    assert not entries(document, "overview")
    assert "[a] Fewer than 5 pairs" in rich_text.write(document)
