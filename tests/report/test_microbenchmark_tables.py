"""Tests of reports with tables of other tools: a single table, and several tables of one benchmark side by side."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write

from hpcbench.errors import UserError
from hpcbench.report.main import report
from hpcbench.report.sections import read
from hpcbench.report.tables.microbenchmarks import tabulate_microbenchmarks

FIXTURES = Path(__file__).parents[1] / "collect" / "microbenchmarks"


def test_prefixes_of_a_launcher_are_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "tagged.txt"
    lines = (FIXTURES / "osu-allreduce-cuda.txt").read_text().splitlines()
    path.write_text("".join(f"[1,0]<stdout>:{line}\r\n" for line in lines))
    plain, tagged = (read([item]).microbenchmarks[0] for item in (FIXTURES / "osu-allreduce-cuda.txt", path))
    assert tagged.sizes == plain.sizes


def test_all_quantities_of_one_with_the_line_of_each() -> None:
    result = read([FIXTURES / "nccl-all-reduce.txt"])
    assert result.sections == []
    (table,) = tabulate_microbenchmarks(result.microbenchmarks)
    assert [column.head for column in table.columns][:4] == [
        "size (B)",
        "time (us)",
        "algorithm bandwidth (GB/s)",
        "bus bandwidth (GB/s)",
    ]
    assert [entry.shown for entry in table.rows[1]] == [
        "268435456",
        "1445",
        "185.7",
        "278.6",
        "1442",
        "186.2",
        "279.3",
        "2",
    ]
    assert table.rows[1][1].source == f"{FIXTURES / 'nccl-all-reduce.txt'}:12"


def test_the_same_benchmark_twice_is_compared_size_by_size(tmp_path: Path) -> None:
    text = (FIXTURES / "osu-allreduce-cuda.txt").read_text()
    (tmp_path / "zfp.txt").write_text(text.replace("170.16", " 85.08").replace("1024  ", "2048  "))
    result = read([FIXTURES / "osu-allreduce-cuda.txt", tmp_path / "zfp.txt"])
    (table,) = tabulate_microbenchmarks(result.microbenchmarks)
    ratios = {row[0].value: row[-1].value for row in table.rows}
    assert ratios == {4: 1.0, 1024: None, 1 << 20: pytest.approx(0.5), 2048: None}


def test_runs_and_tables_in_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.3, 2.7), Planted("mzhybrid", 1, 0.3, 2.7)])
    assert report([root, FIXTURES / "osu-bw-5.6.txt"]) == 0
    out = capsys.readouterr().out
    assert "mzhybrid" in out and "MPI Bandwidth" in out and "12.35" in out
    report([FIXTURES / "osu-bw-5.6.txt"], "json")
    first, _ = json.loads(capsys.readouterr().out)["microbenchmarks"]
    assert first["sizes"][1]["values"] == {"bytes_per_s": pytest.approx(12345.6e6)}


def test_what_needs_runs_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no runs: use table"):
        report([FIXTURES / "osu-bw-5.6.txt"], "csv")
    (tmp_path / "letter.txt").write_text("Dear all,\nlatency was low.\n")
    with pytest.raises(UserError, match="nor a table of the OSU micro-benchmarks or nccl-tests"):
        report([tmp_path / "letter.txt"])


def test_wrong_results_end_with_status_one() -> None:
    assert report([FIXTURES / "nccl-all-reduce.txt"]) == 1
    assert report([FIXTURES / "osu-validation.txt"]) == 1
    assert report([FIXTURES / "osu-allreduce-cuda.txt"]) == 0


def test_unnamed_tables_of_two_benchmarks_are_not_compared() -> None:
    result = read([FIXTURES / "nccl-unnamed-all-reduce.txt", FIXTURES / "nccl-unnamed-all-gather.txt"])
    tables = list(tabulate_microbenchmarks(result.microbenchmarks))
    assert ["all-reduce" in table.title for table in tables] == [True, False]
    assert not any("over" in column.head for table in tables for column in table.columns)
    assert all("`# Collective test starting: NAME`" in " ".join(table.notes) for table in tables)


def test_tables_are_compared_once_they_are_named(tmp_path: Path) -> None:
    text = (FIXTURES / "nccl-unnamed-all-reduce.txt").read_text()
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, busbw in zip(paths, ("28.48", "14.24"), strict=True):
        path.write_text("# Collective test starting: all_reduce_perf\n" + text.replace("28.48", busbw))
    (table,) = tabulate_microbenchmarks(read(paths).microbenchmarks)
    assert table.rows[0][-1].value == pytest.approx(0.5)


def test_types_and_reductions_stand_in_rows_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    path = FIXTURES / "nccl-all-operations.txt"
    (table,) = tabulate_microbenchmarks(read([path]).microbenchmarks)
    assert [tuple(entry.shown for entry in (*row[:4], row[-1])) for row in table.rows] == [
        ("196608", "float", "sum", "125.9", "-"),
        ("204800", "float", "sum", "126.3", "12"),
        ("196608", "float", "max", "125.8", "-"),
        ("204800", "float", "max", "124.6", "-"),
        ("196608", "float", "min", "125.5", "-"),
        ("196608", "bfloat16", "min", "205.5", "-"),
    ]
    assert report([path], "json") == 1
    sizes = json.loads(capsys.readouterr().out)["microbenchmarks"][0]["sizes"]
    assert [(size["datatype"], size["operation"]) for size in sizes][-2:] == [("float", "min"), ("bfloat16", "min")]


def test_types_of_osu_are_told_apart_and_never_compared() -> None:
    (table,) = tabulate_microbenchmarks(read([FIXTURES / "osu-three-types.txt"]).microbenchmarks)
    assert [row[1].shown for row in table.rows] == ["MPI_CHAR"] * 2 + ["MPI_INT"] * 2 + ["MPI_FLOAT"] * 2
    assert [column.head for column in table.columns] == ["size (B)", "type", "time (us)"]


def test_a_benchmark_that_a_file_holds_twice_has_the_line_in_its_head(tmp_path: Path) -> None:
    text = (FIXTURES / "osu-allreduce-cuda.txt").read_text()
    (tmp_path / "twice.txt").write_text(text + text)
    (table,) = tabulate_microbenchmarks(read([tmp_path / "twice.txt"]).microbenchmarks)
    heads = [column.head for column in table.columns]
    assert len(set(heads)) == len(heads) and "twice:6: time (us)" in heads


def test_wrong_elements_count_though_the_row_was_measured_again(tmp_path: Path) -> None:
    text = (FIXTURES / "osu-validation.txt").read_text()
    lines = text.splitlines()
    bad = next(line for line in lines if "Fail" in line)
    (tmp_path / "x.txt").write_text("\n".join([*lines, bad.replace("Fail", "Pass"), ""]))
    (table,) = tabulate_microbenchmarks(read([tmp_path / "x.txt"]).microbenchmarks)
    assert [row[-1].value for row in table.rows] == [None, 1]


def test_a_heading_without_a_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("# OSU MPI Latency Test v9\n# Size   Avg Latency(us)\nKilled\n")
    with pytest.raises(UserError, match=r"x.txt:2: the table of OSU.* with this heading has no rows"):
        report([tmp_path / "x.txt"])


def test_remarks_stand_below_the_table() -> None:
    notes = [
        " ".join(table.notes)
        for name in ("nccl-one-of-two-stopped.txt", "nccl-timestamps.txt")
        for table in tabulate_microbenchmarks(read([FIXTURES / name]).microbenchmarks)
    ]
    assert ["the table is incomplete" in note for note in notes] == [True, False, False]
    assert "were skipped: timestamp" in notes[2]
