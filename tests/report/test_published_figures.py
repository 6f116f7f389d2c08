"""Tests of published figures: the files, and their comparison with measurements."""

from dataclasses import replace
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.errors import UserError
from hpcbench.present import rich_text
from hpcbench.present.document import Chapter, Document, parts
from hpcbench.report.measures import Measures
from hpcbench.report.sections import read
from hpcbench.report.tables.published import Paper, Published, read_papers, tabulate_published


def test_each_file_is_read_and_each_figure_says_where_it_stands() -> None:
    papers_read = read_papers()
    figures = [figure for paper in papers_read for figure in paper.figures]
    assert len(papers_read) >= 8 and len(figures) >= 40
    assert all(figure.read_in and figure.value > 0 for figure in figures)
    seed = next(paper for paper in papers_read if "2409.02423" in paper.reference)
    gains = {(figure.quantity, figure.value) for figure in seed.figures}
    assert gains == {("flops_ratio", 1.225), ("speed_ratio", 1.236), ("flops_ratio", 1.173), ("speed_ratio", 1.127)}


def test_schemes_stand_beside_what_was_published_of_their_kind(tmp_path: Path) -> None:
    runs = [
        Planted(scheme, repeat, seconds * (1 + repeat / 1000), 2.7)
        for repeat in (1, 2, 3)
        for scheme, seconds in (("baseline", 0.44), ("naive-zfp8", 0.40), ("zhybrid-16-8", 0.36))
    ]
    ((submission, cells),) = read([write(tmp_path / "001", runs)]).sections
    table = tabulate_published(submission, cells)
    assert table is not None
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    seed = [row for row in rows if "2409.02423" in str(row["reference"].value)]
    assert [(row["scheme"].value, row["value"].value, row["value"].shown) for row in seed] == [
        ("naive-zfp8", 1.225, "1.23, 1.24"),
        ("zhybrid-16-8", 1.173, "1.17, 1.13"),
    ], "both ratios of an experiment have one counterpart, and one row"
    assert seed[0]["figure"].shown.startswith("one codec on all traffic: TFLOPS/GPU, samples/s (GPT-NeoX-20B")
    (taco,) = [row for row in rows if "TACO" in row["figure"].shown]
    assert taco["reference"].shown == "arXiv 2604.24088: abstract", "a figure's own reference goes before the file's"
    measured = {row["scheme"].value: row["measured"].value for row in seed}
    assert measured == {"naive-zfp8": pytest.approx(1.1), "zhybrid-16-8": pytest.approx(0.44 / 0.36)}
    assert all(row["citation"].value == "first-hand" for row in seed)
    assert not any(row["value"].shown.endswith("TFLOPS") for row in rows), "figures of GPUs are compared with GPUs only"


def test_a_row_reads_well_from_a_hundred_columns_on(tmp_path: Path) -> None:
    runs = [Planted("baseline", 1, 0.4, 2.7), Planted("zhybrid-16-8", 1, 0.3, 2.7)]
    ((submission, cells),) = read([write(tmp_path / "001", runs)]).sections
    table = tabulate_published(submission, cells)
    assert table is not None
    for width in (100, 160):
        assert len(parts(table, width, 3)) == 1, "all columns stand side by side"
        page = rich_text.write(Document("", (Chapter("", "", (replace(table, notes=()),)),)), width)
        lines = page.splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= 3 + len(table.rows) * (9 if width == 100 else 3)


def test_rates_of_a_gpu_stand_beside_the_baseline_on_that_gpu(tmp_path: Path) -> None:
    runs = [Planted("baseline", 1, 0.4, 2.7), Planted("naive-zfp8", 1, 0.3, 2.7)]
    ((submission, (cell,)),) = read([write(tmp_path / "001", runs)]).sections
    facts = {"setting": "s", "citation": "first-hand", "read_in": "table"}
    figure = Published(what="TFLOPS/GPU", quantity="tflops", value=137, gpu="A100", **facts)
    source = Paper(paper="P", authors="A", reference="R", figures=[figure])
    assert tabulate_published(submission, [cell], [source]) is None

    def put_on_gpu(run: Measures) -> Measures:
        return replace(run, basis=replace(run.basis, chip="NVIDIA A100-SXM4"))

    rows = [replace(row, runs=tuple(map(put_on_gpu, row.runs))) for row in cell.rows]
    table = tabulate_published(submission, [replace(cell, rows=tuple(rows))], [source])
    assert table is not None
    assert [(row[0].value, row[2].shown) for row in table.rows] == [("baseline", "137 TFLOPS")]


def test_nothing_of_the_kind_no_table(tmp_path: Path) -> None:
    ((submission, cells),) = read([write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])]).sections
    assert tabulate_published(submission, cells) is None


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "paper: P\nauthors: A\nreference: R\nfigures:\n"
        "  - {what: w, setting: s, quantity: speed_ratio, value: 1.2, citation: sure, read_in: abstract}\n"
    )
    with pytest.raises(UserError, match=r"a\.yaml:5: figures\.0\.citation"):
        read_papers(tmp_path)
