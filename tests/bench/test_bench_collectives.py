"""Tests of `hpcbench bench collectives` on real ranks.

The figures in the output agree with plans and codecs, and plans use these figures.
"""

import csv
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_cli import bench, command, environment

from hpcbench.bench import data, options
from hpcbench.bench.exercise import OPERATIONS, rotate_values
from hpcbench.bench.schemes import MeasuredScheme
from hpcbench.bench.tuning import merge_times
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.links import load
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Algorithm
from hpcbench.errors import UserError
from hpcbench.present.results import save

FLOAT = np.dtype(np.float32)
SCHEMES = ["int8:256 two-shot", "int8:256 auto", "zfp:16 two-shot", "zfp:16 auto"]
SIZES = [4096, 16384]


def links(ranks: int, **rows: Any) -> dict[str, Any]:
    """Return the file of a machine whose library takes no time for an all-reduce, and a day for other operations."""
    others = [operation.value for operation in Operation if operation is not Operation.ALL_REDUCE]
    day = [[operation, size, 86400.0] for operation in others for size in SIZES]
    return {
        "schema": 1,
        "within": {"latency_s": 1e-6, "bytes_per_s": 1e9},
        "between": None,
        "codecs": {},
        "native": [["all-reduce", size, 1e-9] for size in SIZES] + day,
        "measured": [[operation, "int8:256", size, "two-shot", 1, 1e-6] for operation in others for size in SIZES],
        "ranks_per_node": [ranks],
        **rows,
    }


class Run:
    """Run the command on some ranks, and return its output."""

    def __init__(self, ranks: int, directory: Path) -> None:
        self.ranks, self.directory = ranks, directory
        self.links = directory / "links.json"
        self.links.write_text(json.dumps(links(ranks)), encoding="utf-8")
        files = [part for kind in ("json", "csv") for part in ("--output", directory / f"x.{kind}")]
        operations = [part for name in OPERATIONS for part in ("--op", name)]
        schemes = ["--codec", "int8", "--codec", "zfp:16", "--algorithm", "two-shot", "--algorithm", "auto"]
        how: tuple[str, ...] = ("--ranks", "2") if ranks == 2 else ()
        self.done = bench(
            "collectives",
            *(*operations, *schemes, *files, *how),
            *("--min", "4K", "--max", "16K", "--repeats", "1", "--tune", self.links, "--plots", directory),
            mpirun=None if how else ranks,
        )
        assert self.done.returncode == 0, self.done.stderr
        self.document: dict[str, Any] = json.loads((directory / "x.json").read_text(encoding="utf-8"))
        self.rows: list[dict[str, Any]] = self.document["rows"]

    def row(self, operation: str, nbytes: int, scheme: str) -> dict[str, Any]:
        (result,) = (r for r in self.rows if (r["operation"], r["bytes"], r["scheme"]) == (operation, nbytes, scheme))
        return result

    def contributions(self, nbytes: int) -> list[np.ndarray]:
        values = data.make_values("gradient", max(SIZES) // 4, FLOAT)[: nbytes // 4]
        return [rotate_values(values, rank) for rank in range(self.ranks)]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(request.param, tmp_path_factory.mktemp("collectives"))


def coded(x: np.ndarray, name: str) -> np.ndarray:
    codec = get_codec(name)
    wire = np.zeros(codec.wire_bytes(x.size, x.dtype), np.uint8)
    y = np.empty_like(x)
    codec.decode(wire[: codec.encode(x, wire)], y)
    return y


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def test_every_case_has_its_rows(run: Run) -> None:
    schemes = {name: ["native", *SCHEMES] for name in OPERATIONS}
    schemes["all-to-all"] = ["native", "int8:256 two-shot", "zfp:16 two-shot"]
    assert [(r["operation"], r["bytes"], r["scheme"]) for r in run.rows] == [
        (operation, size, scheme) for operation in OPERATIONS for size in SIZES for scheme in schemes[operation]
    ]
    assert run.document["ranks_per_node"] == [run.ranks] and run.document["mpi"] and run.document["left_out"] == []
    for r in run.rows:
        share = OPERATIONS[r["operation"]].share(run.ranks)
        assert r["algorithm_bandwidth"] == pytest.approx(r["bytes"] / r["seconds"])
        assert r["bus_bandwidth"] == pytest.approx(share * r["algorithm_bandwidth"])
        assert r["seconds"] >= r["seconds_least"] > 0 and r["speedup"] > 0
        if r["scheme"] == "native":
            assert r["algorithm"] in ("blocking", "nonblocking") and r["speedup"] == 1 and r["wire_share"] == 1


def test_bus_bandwidth_is_that_of_other_benchmarks() -> None:
    assert {name: operation.share(4) for name, operation in OPERATIONS.items()} == {
        "all-reduce": 1.5,
        "reduce-scatter": 0.75,
        "all-gather": 0.75,
        "broadcast": 1.0,
        "reduce": 1.0,
        "all-to-all": 0.75,
    }


@pytest.mark.parametrize("codec", ["int8:256", "zfp:16"])
@pytest.mark.parametrize("nbytes", SIZES)
def test_errors_are_those_of_the_algorithm_done_by_hand(run: Run, codec: str, nbytes: int) -> None:
    given, p = run.contributions(nbytes), run.ranks
    exact = np.sum([x.astype(np.float64) for x in given], axis=0)
    pieces = cut_evenly(nbytes // 4, p)

    summed = np.empty_like(given[0])
    for owner, piece in enumerate(pieces):
        terms = [x[piece] if rank == owner else coded(x[piece], codec) for rank, x in enumerate(given)]
        summed[piece] = np.sum(terms, axis=0)
    gathered = np.concatenate([coded(summed[piece], codec) for piece in pieces])
    joined = np.concatenate([x[piece] for x, piece in zip(given, pieces, strict=True)])
    each = np.concatenate([coded(joined[piece], codec) for piece in pieces])
    at_root = np.sum([x if rank == 0 else coded(x, codec) for rank, x in enumerate(given)], axis=0)
    moved = [x[piece] for to, piece in enumerate(pieces) for rank, x in enumerate(given) if rank != to]
    stayed = [x[piece] for x, piece in zip(given, pieces, strict=True)]
    sent, came = np.concatenate([*moved, *stayed]), np.concatenate([*(coded(x, codec) for x in moved), *stayed])

    wanted = {
        "all-reduce": relative(gathered, exact),
        "reduce-scatter": relative(summed, exact),
        "all-gather": relative(each, joined.astype(np.float64)),
        "broadcast": relative(coded(given[0], codec), given[0].astype(np.float64)),
        "reduce": relative(at_root, exact),
        "all-to-all": relative(came, sent.astype(np.float64)),
    }
    for operation, error in wanted.items():
        row = run.row(operation, nbytes, f"{codec} two-shot")
        assert row["relative_error"] == pytest.approx(error, rel=1e-4), operation
        native = run.row(operation, nbytes, "native")["relative_error"]
        assert native <= (2e-7 if operation in ("all-reduce", "reduce-scatter", "reduce") else 0.0)


def test_bytes_are_those_of_plan_and_codec(run: Run) -> None:
    for operation in Operation:
        for nbytes in SIZES:
            topology, codec = Topology.flat(run.ranks), get_codec("int8")
            chosen = plan(Request(operation, nbytes // 4, FLOAT, topology, codec, algorithm=Algorithm.TWO_SHOT))
            row = run.row(operation.value, nbytes, "int8:256 two-shot")
            assert row["message_bytes"] == sum(chosen.message_bytes(rank) for rank in range(run.ranks))
            assert row["wire_bytes"] == sum(chosen.wire_bytes(rank) for rank in range(run.ranks))
            assert row["wire_share"] == row["wire_bytes"] / row["message_bytes"]
    part = sum(count_elements(piece) for piece in cut_evenly(SIZES[0] // 4, run.ranks)) * 4 * (run.ranks - 1)
    assert run.row("all-to-all", SIZES[0], "zfp:16 two-shot")["message_bytes"] == part


def test_auto_heeds_the_file_and_the_rows_say_so(run: Run) -> None:
    for nbytes in SIZES:
        plain = run.row("all-reduce", nbytes, "int8:256 auto")
        assert (plain["algorithm"], plain["plain_calls"], plain["wire_share"]) == ("native", 1, 1.0)
        assert plain["relative_error"] < 2e-7
        for operation in ("reduce-scatter", "all-gather", "broadcast"):
            row = run.row(operation, nbytes, "int8:256 auto")
            assert (row["algorithm"], row["slices"], row["plain_calls"]) == ("two-shot", 1, 0), "as it was measured"
            unmeasured = run.row(operation, nbytes, "zfp:16 auto")
            assert (unmeasured["algorithm"], unmeasured["plain_calls"]) == ("native", 1), "as the model has it"


def test_what_was_measured_is_added_to_the_file(run: Run) -> None:
    result = load(run.links)
    before = links(run.ranks)
    native = {(operation, size): seconds for operation, size, seconds in result.native}
    measured = {row[:-1]: row[-1] for row in result.measured}
    assert len(native) == len(result.native) == len(before["native"]) and len(measured) == len(result.measured)
    for operation in Operation:
        for size in SIZES:
            assert native[operation.value, size] == run.row(operation.value, size, "native")["seconds"]
            rows = [run.row(operation.value, size, f"int8:256 {how}") for how in ("two-shot", "auto")]
            times = [row["seconds"] for row in rows if row["algorithm"] == "two-shot"]
            key = operation.value, "int8:256", size, "two-shot", rows[0]["slices"]
            assert measured[key] == max(times), "the slower one where both came to the same plan"
    assert not any(how == "native" for _, _, _, how, _ in measured)
    assert {row[0] for row in measured} == {operation.value for operation in Operation}


def test_csv_has_its_columns(run: Run) -> None:
    with (run.directory / "x.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    promised = {"operation", "bytes", "scheme", "seconds", "bus_bandwidth", "speedup", "relative_error", "wire_share"}
    assert promised <= set(rows[0])
    assert len(rows) == len(run.rows) and [float(r["seconds"]) for r in rows] == [r["seconds"] for r in run.rows]


def test_the_tables_say_who_carried_it_out(run: Run) -> None:
    lines = run.done.stdout.splitlines()
    assert lines[0].startswith(f"1 nodes x {run.ranks} ranks; gradient, float32; ")
    headings = [line for line in lines if re.match("all-reduce +native us", line)]
    assert re.split(r"\s{2,}", headings[0].strip()) == ["all-reduce", "native us", *SCHEMES]
    times = [line for line in lines if re.match(r"4K +\d", line)]
    assert len(times) == len(OPERATIONS) and all("x)" in line for line in times)
    assert any(re.match(r"\S+\s+int8:256 auto\s+native\s", line) for line in lines), "the library in the codec's place"
    assert any(re.match(r"\S+\s+int8:256 auto\s+two-shot\s", line) for line in lines)


def test_the_plot_names_operations_and_schemes(run: Run) -> None:
    texts = set(
        re.findall(r"<text[^>]*>([^<]*)</text>", (run.directory / "collectives.svg").read_text(encoding="utf-8"))
    )
    assert {*OPERATIONS, *SCHEMES, "native", "times as fast as native", "4K", "16K"} <= texts


def test_no_other_file_is_left(run: Run) -> None:
    assert {path.name for path in run.directory.iterdir()} == {
        "links.json",
        "x.json",
        "x.csv",
        "collectives.svg",
        "collectives.png",
    }


def test_a_slice_count_is_carried_out(tmp_path: Path) -> None:
    files = ("--output", tmp_path / "x.json")
    options = ("--codec", "int8", "--slices", "1", "--slices", "3", "--min", "64K", "--max", "64K", "--repeats", "1")
    done = bench("collectives", "--ranks", "2", "--algorithm", "ring", "--algorithm", "two-shot", *options, *files)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["rows"]
    assert [(r["scheme"], r["algorithm"], r["slices"]) for r in rows[1:]] == [
        (f"int8:256 {how} x{count}", how, count) for how in ("ring", "two-shot") for count in (1, 3)
    ]
    assert "two-shot x3" in done.stdout


def test_what_an_algorithm_cannot_do_is_left_out_and_said(tmp_path: Path) -> None:
    quick = ("--min", "4K", "--max", "4K", "--repeats", "1")
    only = ("--ranks", "2", "--codec", "int8", "--algorithm", "homomorphic", *quick)
    done = bench("collectives", "--op", "all-reduce", "--op", "all-gather", *only)
    assert done.returncode == 0, done.stderr
    assert (
        "Not measured: homomorphic does not support all-gather over 1 nodes x 2 ranks: the algorithm supports only"
        " all-reduce" in done.stdout
    )
    assert any(re.match(r"\S+\s+int8:256 homomorphic\s+homomorphic\s", line) for line in done.stdout.splitlines())


def test_sizes_that_do_not_fit_are_left_out_and_said() -> None:
    done = bench("collectives", "--ranks", "2", "--min", "4096G", "--max", "4096G")
    assert done.returncode == 2 and done.stderr.count("hpcbench: ") == 1
    assert re.search(
        r"nothing to measure: 4096G is left out: it needs \d+ MiB per rank, but only \d+ MiB are available", done.stderr
    )


def test_plans_are_printed_without_any_rank(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    file.write_text(json.dumps(links(4)), encoding="utf-8")
    arguments = ("--plan", "--codec", "int8", "--algorithm", "auto", "--min", "4K", "--max", "4K", "--links", file)
    done = bench("collectives", "--ranks", "4", "--op", "all-reduce", "--op", "all-gather", *arguments)
    assert done.returncode == 0, done.stderr
    first, second, *steps = done.stdout.splitlines()
    assert first.startswith("all-reduce 4K, int8:256 auto: ") and "native, by the MPI library (0 us; int8:256" in first
    assert "two-shot, codec int8:256, 1 slices (fastest, 1 us measured)" in second
    assert steps == ["  gather from the owners: 3072 bytes as 780 to rank 1, 2, 3"]
    there = bench("collectives", *arguments[:-2], mpirun=2)
    assert there.returncode == 0 and there.stdout.count("all-reduce 4K, int8:256 auto: ") == 1, "one rank prints"


def test_a_file_of_other_ranks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    file.write_text(json.dumps(links(8)), encoding="utf-8")
    for option in ("--links", "--tune"):
        done = bench("collectives", "--ranks", "2", "--max", "4K", option, file)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "measured with 8 ranks on 1 nodes, but the run has 1 nodes x 2 ranks. Measure these ranks" in done.stderr
    assert json.loads(file.read_text(encoding="utf-8")) == links(8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs several ranks. Start it with `mpirun -n 8 hpcbench bench collectives ...`, or add --ranks 8"),
        (["--ranks", "2", "--codec", "nonsense"], "unknown codec 'nonsense'"),
        (["--ranks", "2", "--op", "all-redcue"], "did you mean 'all-reduce'?"),
        (["--ranks", "2", "--algorithm", "tow-shot"], "did you mean 'two-shot'?"),
        (["--ranks", "2", "--algorithm", "native"], "--algorithm native: is always measured"),
        (["--ranks", "2", "--codec", "zfp:8", "--algorithm", "homomorphic"], "use codec int8 instead of zfp:8"),
        (["--ranks", "2", "--min", "many"], "--min many: not a size. Write bytes, or 64K, 256M, 1G"),
        (["--ranks", "2", "--min", "6"], "--min 6: must be a multiple of 4 bytes"),
        (["--ranks", "2", "--min", "1M", "--max", "64K"], "--max 64K: is below --min 1M"),
        (["--ranks", "2", "--slices", "0"], "--slices 0: must be from 1 to 64"),
        (["--ranks", "2", "--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--ranks", "2", "--output", "x.pdf"], "is not the suffix of a format: use .txt, "),
        (["--ranks", "2", "--output", "."], "--output .: is a directory"),
        (["--ranks", "2", "--max", "4K", "--links", "none.json"], "create the file with `hpcbench bench network"),
        (["--ranks", "2", "--max", "4K", "--data", "gradeint"], "no such data. Use one of gauss, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_end_in_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = bench("collectives", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.startswith("hpcbench: ") and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_measurement_leaves_nothing(tmp_path: Path) -> None:
    arguments = ("collectives", "--ranks", "2", "--max", "64M", "--repeats", "1000", "--output", tmp_path / "x.json")
    process = subprocess.Popen(
        command(*arguments),
        env=environment(OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(4)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode not in (0, None) and list(tmp_path.iterdir()) == []


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    file.write_text("old", encoding="utf-8")

    def full(self: Path, phrase: str, encoding: str) -> int:
        with self.open("w", encoding=encoding) as out:
            out.write(phrase[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=r"--output .*: cannot be written: No space left on device"):
        save(file, "new words")
    assert file.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [file]


def test_sizes() -> None:
    assert [options.parse_size("--min", text) for text in ("4096", "4k", "4KiB", "1M", "2G")] == [
        4096,
        4096,
        4096,
        2**20,
        2**31,
    ]
    assert options.list_sizes(1024, 100_000) == [1024, 4096, 16384, 65536]
    assert [options.format_size(nbytes) for nbytes in (4, 1024, 5000, 2**20, 2**30)] == ["4", "1K", "5000", "1M", "1G"]


def test_tuning_replaces_what_it_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    rows = [["all-reduce", "int8:256", 4096, "ring", 1, 1.0], ["all-reduce", "int8:256", 4096, "ring", 2, 2.0]]
    file.write_text(json.dumps(links(2, measured=rows)), encoding="utf-8")
    assert json.loads(merge_times(file, []))["measured"] == rows
    assert MeasuredScheme("int8", Algorithm.AUTO).channel().codec.name == "int8:256"
