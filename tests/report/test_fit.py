"""Tests of the division of wide tables into parts."""

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.present.document import LONGEST_NAME, Chapter, Column, Document, Entry, Table, parts
from hpcbench.present.rich_text import write


def table(widths: list[int], groups: list[int]) -> Table:
    """Return columns of numbers with these widths, after a column with a name of four letters."""
    columns = (Column("name", "name", text=True), *(Column(f"c{i}", "x", group=g) for i, g in enumerate(groups)))
    return Table("t", "", columns, ((Entry("name"), *(Entry("9" * width) for width in widths)),))


def test_a_table_that_fits_is_whole() -> None:
    assert parts(table([10, 10, 10], [0, 0, 1]), 4 + 3 * 10 + 3 * 2, 2) == [(0, 1, 2, 3)]


def test_groups_stay_together() -> None:
    planted_table = table([10, 10, 10, 10], [0, 0, 1, 1])
    assert parts(planted_table, 39, 2) == [(0, 1, 2), (0, 3, 4)]
    # Not even one group fits, so its columns are divided individually.
    assert parts(planted_table, 27, 2) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_groups_share_a_part_where_they_fit() -> None:
    assert parts(table([5, 5, 20], [0, 1, 2]), 18, 2) == [(0, 1, 2), (0, 3)]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(10, 200),
    st.integers(1, 3),
)
def test_every_column_stands_once_and_fits_if_it_can(columns: list[tuple[int, int]], width: int, gap: int) -> None:
    widths, groups = [width for width, _ in columns], sorted(group for _, group in columns)
    table_parts = parts(table(widths, groups), width, gap)
    assert [i for part in table_parts for i in part[1:]] == list(range(1, len(columns) + 1))
    for part in table_parts:
        assert part[0] == 0
        need = 4 + sum(widths[i - 1] + gap for i in part[1:])
        assert need <= width or len(part) == 2


def test_figures_are_never_cut() -> None:
    planted_table = table([12] * 9, [0, 0, 0, 1, 1, 2, 2, 2, 2])
    for width in range(20, 130, 7):
        text = write(Document("", (Chapter("", "", (planted_table,)),)), width)
        assert text.count("9" * 12) == 9
        assert max(map(len, text.splitlines())) <= width


def test_a_long_name_is_folded() -> None:
    planted_table = table([10], [0])
    long = Table("t", "", planted_table.columns, ((Entry("n" * 100), Entry("9" * 10)),))
    text = write(Document("", (Chapter("", "", (long,)),)), 60)
    assert text.count("n" * LONGEST_NAME) == 4
    assert "n" * (LONGEST_NAME + 1) not in text
