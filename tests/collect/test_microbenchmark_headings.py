"""Tests of headings that vary by version, option, launcher and user.

Known columns are read, and other columns are reported.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.collect.benchmark_tables.nccl_json import read_json
from hpcbench.collect.microbenchmarks import Microbenchmark, load, read

FIXTURES = Path(__file__).parent / "microbenchmarks"


def table_of(name: str) -> Microbenchmark:
    (table,) = load(FIXTURES / name)
    return table


def values_of(table: Microbenchmark, row: int = 0) -> dict[str, float]:
    return dict(table.sizes[row].values)


def read_lines(*lines: str) -> list[Microbenchmark]:
    return read(lines, Path("x"))


def approximately(**values: float) -> object:
    return pytest.approx(values, rel=1e-9)


def test_figures_below_a_bare_heading() -> None:
    table = table_of("osu-bare-heading.txt")
    assert values_of(table) == approximately(
        seconds=50.89e-6, seconds_min=18.27e-6, seconds_max=89.23e-6, iterations=1000
    )
    assert [size.bytes for size in table.sizes] == [1, 2, 4, 8, 1024]


@pytest.mark.parametrize(
    ("row", "quantities"),
    [
        ("8  50.0  40.0  60.0  100  49.0  55.0  59.0", 7),
        ("8  50.0  40.0  60.0  100", 4),
        ("8  50.0  60.0  70.0  100", 1),  # the minimum is above the mean
        ("8  50.0  40.0  60.0  99.5", 1),  # half an iteration
        ("8  50.0  40.0", 1),
    ],
)
def test_figures_without_heading_are_read_only_if_they_are_plausible(row: str, quantities: int) -> None:
    (table,) = read_lines("# OSU MPI Reduce Latency Test v7.3", "# Size  Avg Latency(us)", row)
    assert len(table.sizes[0].values) == quantities
    assert table.sizes[0].values["seconds"] == pytest.approx(50e-6)
    assert bool(table.remarks) == (quantities == 1)


def test_all_columns_of_a_nonblocking_collective() -> None:
    table = table_of("osu-nonblocking-full.txt")
    assert values_of(table) == approximately(
        seconds_overall=12.1e-6, seconds_compute=5.4e-6, seconds_init=1.1e-6, seconds_test=0, seconds_wait=5.6e-6,
        seconds_pure=5.31e-6, seconds_pure_min=5.01e-6, seconds_pure_max=5.6e-6, overlap=0,
    )  # fmt: skip
    assert table.remarks == []


def test_percentiles_of_a_bandwidth() -> None:
    table = table_of("osu-bandwidth-tail.txt")
    assert values_of(table, -1) == approximately(
        bytes_per_s=27161.33e6, bytes_per_s_p50=27100.1e6, bytes_per_s_p90=27301.22e6, bytes_per_s_p99=27355.01e6
    )


OSU_COLUMNS = {
    "Avg Latency(us)": ("seconds", "3.25", 3.25e-6),
    "Min Latency(us)": ("seconds_min", "3.125", 3.125e-6),
    "Max Latency(us)": ("seconds_max", "4.5", 4.5e-6),
    "P95 Tail Lat(us)": ("seconds_p95", "4.25", 4.25e-6),
    "Bandwidth (GB/s)": ("bytes_per_s", "12.5", 12.5e9),
    "P50 Tail BW(MB/s)": ("bytes_per_s_p50", "12.25", 12.25e6),
    "MPI_Wait(ms)": ("seconds_wait", "0.5", 0.5e-3),
    "Overlap(%)": ("overlap", "80.0", 0.8),
    "Iterations": ("iterations", "1000", 1000),
    "Temperature(K)": ("", "300.1", None),
    "Power draw(W)": ("", "410.0", None),
    "Queue": ("", "7", None),
    "Bandwidth(furlongs)": ("", "1.0", None),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(OSU_COLUMNS)), min_size=1, unique=True), st.booleans())
def test_known_columns_in_any_order_between_unknown_ones(heads: list[str], prefixed: bool) -> None:
    if "Bandwidth (GB/s)" in heads and "Bandwidth(furlongs)" in heads:
        heads.remove("Bandwidth(furlongs)")
    expected = {name: value for name, _, value in (OSU_COLUMNS[head] for head in heads) if value is not None}
    cells = [OSU_COLUMNS[head][1] for head in heads]
    begin = "[1,0]<stdout>:" if prefixed else ""
    lines = ("# OSU MPI Some Test v9.0", "# Size      " + "   ".join(heads), "64   " + "  ".join(cells))
    tables = read_lines(*(begin + line for line in lines))
    assert [size.values for table in tables for size in table.sizes] == ([pytest.approx(expected)] if expected else [])
    unknown = [head for head in heads if OSU_COLUMNS[head][2] is None]
    assert all(head in "".join(tables[0].remarks) for head in unknown if expected)


NCCL_COLUMNS = {
    "time": ("seconds", "552.11", "us", 552.11e-6),
    "algbw": ("algorithm_bytes_per_s", "15.19", "GB/s", 15.19e9),
    "busbw": ("bus_bytes_per_s", "28.48", "GB/s", 28.48e9),
    "i_p99": ("seconds_p99", "580.31", "us", 580.31e-6),
    "i_cv%": ("variation", "1.20", "%", 0.012),
    "watts": ("", "410", None, None),
}


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(sorted(NCCL_COLUMNS)),
    st.sets(st.sampled_from(["time", "algbw", "i_p99", "i_cv%", "watts"])),
    st.permutations(["count", "type", "redop", "root"]),
    st.integers(0, 4),
    st.sampled_from([("us", "GB/s", 1.0, 1.0), ("ms", "MB/s", 1e3, 1e-3)]),
    st.booleans(),
)
def test_columns_of_nccl_tests_in_any_order(
    order: list[str],
    missing: set[str],
    lead: list[str],
    leading: int,
    units: tuple[str, str, float, float],
    stamped: bool,
) -> None:
    lead, heads = lead[:leading], [head for head in order if head not in missing]
    cells = {"count": "128", "type": "half", "redop": "prod", "root": "3"}
    columns = {"us": (units[0], units[2]), "GB/s": (units[1], units[3]), "%": ("%", 1.0)}
    in_units = [f"({columns[unit][0]})" for head in heads if (unit := NCCL_COLUMNS[head][2])]
    lines = (
        "# Collective test starting: all_reduce_perf",
        f"#  size  {'  '.join([*lead, *heads, '#wrong', *heads, '#wrong'])}{'  timestamp' if stamped else ''}",
        f"#  (B)  {'(elements) ' if 'count' in lead else ''} {'  '.join(in_units * 2)}",
        "  512  "
        + "  ".join([*(cells[name] for name in lead), *([NCCL_COLUMNS[head][1] for head in heads] + ["2"]) * 2])
        + ("  2026-03-02 11:20:01" if stamped else ""),
        "# Out of bounds values : 4 FAILED",
    )
    (table,) = read_lines(*lines)
    truth = {
        name + place: value * columns[unit][1]
        for name, _, unit, value in (NCCL_COLUMNS[head] for head in heads)
        if value is not None and unit is not None
        for place in ("", "_in_place")
    }
    (size,) = table.sizes
    assert size.values == pytest.approx(truth)
    assert (size.bytes, size.wrong) == (512, 4)
    assert size.datatype == ("half" if "type" in lead else "")
    assert size.operation == ("prod" if "redop" in lead else "")
    assert size.root == ("3" if "root" in lead else "")
    unread = [word for word in ("watts", "timestamp") if word in lines[1]]
    assert all(word in table.remarks[0] for word in unread) and bool(table.remarks) == bool(unread)


def test_a_timestamp_and_statistics_of_iterations() -> None:
    stamped, statistics = table_of("nccl-timestamps.txt"), table_of("nccl-per-iteration.txt")
    assert values_of(stamped)["seconds"] == pytest.approx(552.11e-6)
    assert values_of(stamped)["bus_bytes_per_s"] == pytest.approx(15.19e9)
    assert stamped.remarks == ["columns that were skipped: timestamp"]
    assert (statistics.name, values_of(statistics)["seconds_p99"]) == ("all_gather_perf", pytest.approx(580.31e-6))
    assert values_of(statistics)["variation_in_place"] == pytest.approx(0.011)


def test_rows_of_several_types_and_reductions() -> None:
    table = table_of("nccl-all-operations.txt")
    assert [(size.key, size.wrong) for size in table.sizes] == [
        ((196608, "float", "sum", ""), 0),
        ((204800, "float", "sum", ""), 12),
        ((196608, "float", "max", ""), 0),
        ((204800, "float", "max", ""), 0),
        ((196608, "float", "min", ""), 0),
        ((196608, "bfloat16", "min", ""), 0),
    ]
    assert table.sizes[0].values["seconds"] == pytest.approx(125.9e-6)
    assert table.is_bad


def test_the_type_that_a_line_above_or_below_the_heading_names() -> None:
    tables = load(FIXTURES / "osu-three-types.txt")
    rows = [(size.datatype, size.values["seconds"] * 1e6) for table in tables for size in table.sizes]
    types, times = zip(*rows, strict=True)
    assert types == ("MPI_CHAR",) * 2 + ("MPI_INT",) * 2 + ("MPI_FLOAT",) * 2
    assert times == pytest.approx([2.1, 2.2, 3.1, 3.2, 4.1, 4.2])
    (below,) = read_lines("# OSU MPI Bandwidth Test v7.1", "# Size   MB/s", "# Datatype: MPI_INT.", "4  2.5")
    assert [size.key for size in below.sizes] == [(4, "MPI_INT", "", "")]


def test_lines_that_were_glued_together() -> None:
    table = table_of("osu-glued.txt")
    assert [size.values["seconds_overall"] for size in table.sizes] == pytest.approx([1.93e-6, 1.91e-6, 1.94e-6])


@pytest.mark.parametrize("at", range(1, 5))
def test_a_missing_line_end(at: int) -> None:
    lines = [
        "# OSU MPI Allreduce Latency Test v7.4",
        "# Size       Avg Latency(us)",
        "4                 1.53",
        "# OSU MPI Bcast Latency Test v7.4",
        "# Size       Avg Latency(us)",
        "8                 1.25",
    ]
    glued = [*lines[: at - 1], lines[at - 1] + lines[at], *lines[at + 1 :]]
    rows = [(size.bytes, size.values["seconds"]) for table in read_lines(*glued) for size in table.sizes]
    assert rows == [(4, pytest.approx(1.53e-6)), (8, pytest.approx(1.25e-6))]


def test_the_units_of_nccl_tests_glued_to_their_heading() -> None:
    lines = (FIXTURES / "nccl-timestamps.txt").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "(B)" in line)
    (table,) = read([*lines[: at - 1], lines[at - 1] + lines[at], *lines[at + 1 :]], Path("x"))
    assert [size.values for size in table.sizes] == [size.values for size in table_of("nccl-timestamps.txt").sizes]


@pytest.mark.parametrize("name", ["osu-three-types.txt", "osu-allreduce-cuda.txt", "nccl-timestamps.txt"])
@pytest.mark.parametrize("begin", ["", "> ", "    ", "> > "])
def test_symbols_of_a_pasted_text(name: str, begin: str) -> None:
    lines = (FIXTURES / name).read_text().splitlines()
    pasted = [begin + line.replace("#", r"\#").replace("_", r"\_") for line in lines]
    assert read(pasted, Path(name)) == read(lines, Path(name))


def test_a_table_that_ends_early_is_noted() -> None:
    stopped, complete = load(FIXTURES / "nccl-one-of-two-stopped.txt")
    assert (stopped.name, complete.name) == ("all_reduce_perf", "all_gather_perf")
    assert "the table is incomplete" in stopped.remarks[0] and complete.remarks == []
    assert len(stopped.sizes) == len(complete.sizes) == 1


def test_a_row_that_was_cut_is_noted() -> None:
    lines = (FIXTURES / "nccl-timestamps.txt").read_text().splitlines()
    (table,) = read_lines(
        "# OSU MPI Latency Test v9", "# Size   Avg Latency(us)  Min Latency(us)", "1 2.0 1.5", "2 2.5"
    )
    assert len(table.sizes) == 1 and "line 4 was skipped, because the row looks truncated" in table.remarks[0]
    (table,) = read([*lines[:12], lines[12][:60]], Path("x"))
    assert len(table.sizes) == 1 and "the table is incomplete" in table.remarks[-1]
    assert table.remarks[0] == "line 13 was skipped, because the row looks truncated"


def test_a_failed_check_outside_the_rows() -> None:
    lines = [
        "# OSU MPI Latency Test v9",
        "# Size   Avg Latency(us)",
        "1 2.0",
        "DATA VALIDATION ERROR: x exited on size 2.",
    ]
    assert read(lines, Path("x"))[0].is_bad and not read(lines[:3], Path("x"))[0].is_bad


JSON = FIXTURES / "nccl-results.json"


def test_the_json_file_of_nccl_tests() -> None:
    table = table_of(JSON.name)
    assert (table.tool, table.name, table.is_bad, table.remarks) == ("nccl-tests", "all_reduce_perf", True, [])
    first, second = table.sizes
    assert (first.key, first.wrong) == ((8388608, "float", "sum", ""), 3)
    assert first.values == approximately(
        seconds=552.11421e-6, algorithm_bytes_per_s=15.19361e9, bus_bytes_per_s=15.19361e9, seconds_in_place=549.301e-6,
        algorithm_bytes_per_s_in_place=15.271422e9, bus_bytes_per_s_in_place=15.271422e9,
    )  # fmt: skip
    assert second.wrong is None
    assert second.values == approximately(seconds_in_place=928.1e-6, algorithm_bytes_per_s_in_place=18.077e9)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_that_was_cut_has_the_rows_before(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(json.loads(JSON.read_text()), indent=indent)
    truth = table_of(JSON.name).sizes
    path = tmp_path / "cut.json"
    for length in range(1, len(text) - 1, 7):
        path.write_text(text[:length])
        tables = load(path)
        assert all(table.sizes == truth[: len(table.sizes)] for table in tables)
        assert all("the file is truncated" in table.remarks[0] for table in tables)
    path.write_text(text[: text.index('"out_of_bounds"')])
    assert load(path)[0].sizes == truth


WORDS = st.sampled_from(["size", "time", "in_place", "results", "args", "okay", "type"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES)
def test_any_json_is_a_table_or_none(results: object, arguments: object) -> None:
    table = read_json(json.dumps({"nccl_version": 1, "results": results, "args": arguments}), Path("x"))
    assert (table is not None) == isinstance(results, list)
    assert table is None or all(size.bytes is not None and size.bytes >= 0 for size in table.sizes)
