"""Tables of other tools in a report: one alone, and several of one benchmark beside each other."""

import json
from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.report.main import report
from hpcbench.report.sections import read
from hpcbench.report.tables.microbenchmarks import microbenchmarks
from hpcbench.testing.results import Planted, write

FIXTURES = Path(__file__).parents[1] / "collect" / "microbenchmarks"


def test_prefixes_of_a_launcher_are_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "tagged.txt"
    lines = (FIXTURES / "osu-allreduce-cuda.txt").read_text().splitlines()
    path.write_text("".join(f"[1,0]<stdout>:{line}\r\n" for line in lines))
    plain, tagged = (read([one]).microbenchmarks[0] for one in (FIXTURES / "osu-allreduce-cuda.txt", path))
    assert tagged.sizes == plain.sizes


def test_all_quantities_of_one_with_the_line_of_each() -> None:
    found = read([FIXTURES / "nccl-all-reduce.txt"])
    assert found.sections == []
    (table,) = microbenchmarks(found.microbenchmarks)
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
    found = read([FIXTURES / "osu-allreduce-cuda.txt", tmp_path / "zfp.txt"])
    (table,) = microbenchmarks(found.microbenchmarks)
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
    with pytest.raises(UserError, match="has no runs: use table"):
        report([FIXTURES / "osu-bw-5.6.txt"], "csv")
    (tmp_path / "letter.txt").write_text("Dear all,\nlatency was low.\n")
    with pytest.raises(UserError, match="nor a table of the OSU micro-benchmarks or nccl-tests"):
        report([tmp_path / "letter.txt"])


def test_wrong_results_end_with_status_one() -> None:
    assert report([FIXTURES / "nccl-all-reduce.txt"]) == 1
    assert report([FIXTURES / "osu-validation.txt"]) == 1
    assert report([FIXTURES / "osu-allreduce-cuda.txt"]) == 0
