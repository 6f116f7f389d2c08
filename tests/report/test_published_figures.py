"""Published figures: the files, and what of ours is set beside them."""

from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.report.published import papers
from hpcbench.report.sections import read
from hpcbench.report.tables.published import published
from hpcbench.testing.results import Planted, write


def test_each_file_is_read_and_each_figure_says_where_it_stands() -> None:
    found = papers()
    figures = [figure for paper in found for figure in paper.figures]
    assert len(found) >= 8 and len(figures) >= 40
    assert all(figure.read_in and figure.value > 0 for figure in figures)
    seed = next(paper for paper in found if "2409.02423" in paper.reference)
    gains = {(figure.quantity, figure.value) for figure in seed.figures}
    assert gains == {("flops_ratio", 1.225), ("speed_ratio", 1.236), ("flops_ratio", 1.173), ("speed_ratio", 1.127)}


def test_schemes_stand_beside_what_was_published_of_their_kind(tmp_path: Path) -> None:
    runs = [
        Planted(scheme, repeat, seconds * (1 + repeat / 1000), 2.7)
        for repeat in (1, 2, 3)
        for scheme, seconds in (("baseline", 0.44), ("naive-zfp8", 0.40), ("zhybrid-16-8", 0.36))
    ]
    ((submission, cells),) = read([write(tmp_path / "001", runs)]).sections
    table = published(submission, cells)
    assert table is not None
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    seed = [row for row in rows if "2409.02423" in str(row["reference"].value)]
    assert {(row["scheme"].value, row["value"].value) for row in seed} == {
        ("naive-zfp8", 1.225),
        ("naive-zfp8", 1.236),
        ("zhybrid-16-8", 1.173),
        ("zhybrid-16-8", 1.127),
    }
    measured = {row["scheme"].value: row["measured"].value for row in seed}
    assert measured == {"naive-zfp8": pytest.approx(1.1), "zhybrid-16-8": pytest.approx(0.44 / 0.36)}
    assert all(row["mark"].value == "confirmed" for row in seed)
    assert not any(row["value"].shown.endswith("TFLOPS") for row in rows), "figures of GPUs stand beside GPUs only"


def test_nothing_of_the_kind_no_table(tmp_path: Path) -> None:
    ((submission, cells),) = read([write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])]).sections
    assert published(submission, cells) is None


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "paper: P\nauthors: A\nreference: R\nfigures:\n"
        "  - {what: w, setting: s, quantity: speed_ratio, value: 1.2, mark: sure, read_in: abstract}\n"
    )
    with pytest.raises(UserError, match=r"a\.yaml:5: figures\.0\.mark"):
        papers(tmp_path)
