"""Tests of `report --export FILE`: the content of each file, and the behavior on errors."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exported import READ
from planted_results import Planted, write

from hpcbench.cli import app
from hpcbench.errors import UserError
from hpcbench.report.export import CHANNELS, RECORDS, Row, files
from hpcbench.report.main import report


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "001", [Planted(scheme, 1, 0.2, 2.7) for scheme in ("baseline", "mzhybrid")])


def test_the_report_is_printed_and_each_file_written(root: Path, tmp_path: Path, capsys: Any) -> None:
    names = ["records.csv", "runs.jsonl", "channels.parquet", "mine.CSV", "all.sqlite"]
    options = [word for name in names for word in ("--export", str(tmp_path / name))]
    assert app(["report", str(root), *options], standalone_mode=False) == 0
    out, err = capsys.readouterr()
    assert "vs baseline" in out
    assert (
        f"{tmp_path / 'records.csv'}: rows written: records 26\n" in err
        and "records 26, runs 2, channels 2, phases 0, staleness 0\n" in err
    )
    counts = {name: len(READ[Path(name).suffix](tmp_path / name, Path(name).stem)) for name in names[:3]}
    assert counts == {"records.csv": 26, "runs.jsonl": 2, "channels.parquet": 2}
    assert (tmp_path / "mine.CSV").read_bytes() == (tmp_path / "records.csv").read_bytes()
    assert not list(tmp_path.glob("*tmp*")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("records", "the suffix selects the file format: use one of .csv, .jsonl, .parquet, .sqlite, .db"),
        ("records.xlsx", "the suffix selects"),
        ("missing/records.csv", "does not exist: create it"),
        ("taken.csv", "is a directory"),
        ("n" * 300 + ".csv", "cannot be written"),
        ("/proc/records.csv", "cannot be written"),
        ("/proc/all.db", "cannot be written"),
        ("a\nb\x1b[2J.txt", "a b [2J.txt"),
    ],
)
def test_a_bad_target_is_one_line(root: Path, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(UserError) as error:
        report([root], exports=[tmp_path / name])
    assert message in str(error.value) and "--export" in str(error.value) and str(error.value).isprintable()


def test_parquet_without_its_package_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        files.ExportTarget.of(tmp_path / "records.parquet")
    assert files.ExportTarget.of(tmp_path / "records.csv").tables == (RECORDS,)


@pytest.mark.parametrize("form", sorted(READ))
def test_what_was_there_stays_until_the_new_is_whole(
    root: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"records{form}"
    path.write_text("old")
    rows = files.rows

    def torn(*arguments: Any) -> Iterator[Row]:
        yield next(iter(rows(*arguments)))
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "rows", torn)
    with pytest.raises(KeyboardInterrupt):
        report([root], exports=[path])
    assert path.read_text() == "old" and sorted(tmp_path.iterdir()) == [tmp_path / "001", path]
    monkeypatch.undo()
    report([root], exports=[path])
    assert len(READ[form](path, "records")) == 26


@pytest.mark.parametrize("form", sorted(READ))
def test_rows_pass_through_and_do_not_pile_up(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROWS", 500)
    row: Row = tuple({"integer": 7, "real": 0.5}.get(column.type, '"x"') for column in CHANNELS.columns)

    def fresh(count: int) -> Iterator[Row]:
        return ((*row[:-1], line) for line in range(count))

    def peak(count: int) -> int:
        tracemalloc.start()
        (tmp_path / f"{count}.db").unlink(missing_ok=True)
        if form == ".sqlite":
            files.write_sqlite(tmp_path / f"{count}.db", {CHANNELS: fresh(count)})
        else:
            write = {".csv": files.write_csv, ".jsonl": files.write_json_lines, ".parquet": files.write_parquet}[form]
            write(tmp_path / str(count), CHANNELS, fresh(count))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1000)  # imports
    # 5,000 tuples of 33 slots take 1.5 MB
    assert peak(6000) < peak(1000) + 500_000


def test_paths_hold_wherever_the_rows_are_read(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report([Path("001")], exports=[Path("records.jsonl")])
    for row in READ[".jsonl"](tmp_path / "records.jsonl", "records"):
        assert row["submission"] == str(root) and row["file"] == f"{root}/runs/{row['run']}/log.txt"
