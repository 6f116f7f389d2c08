"""Tests of the output of `hpcbench bench codecs`, which must agree with the codecs."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_cli import bench

from hpcbench.bench import codecs, data
from hpcbench.bench.codecs import DEFAULT, OPERATIONS
from hpcbench.bench.device import Cpu
from hpcbench.bench.fidelity import Errors, compute_errors
from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import kernels
from hpcbench.codecs.quant import Quant
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array

NAMES = ["none", "bf16", "int8", "zfp:8", "mpc", "2:4"]
HEADINGS = (
    "codec ratio bits/value encode decode decode+add dec+add+enc encode/copy decode/copy rel. RMSE max error bound "
    "NaN, Inf"
)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the JSON file of a small run."""
    assert bench(monkeypatch, *NAMES, "--repeats", "2", "--output", str(tmp_path / "x.json")) == 0
    document: dict[str, Any] = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    return document


def test_json_holds_machine_settings_and_rows(written: dict[str, Any]) -> None:
    assert set(written) == {"version", "schema", "machine", "settings", "memcpy", "rows"}
    assert set(written["machine"]) == {"cpu", "cores", "system", "versions"}
    assert written["machine"]["cpu"] and written["machine"]["versions"]["numpy"] == np.__version__
    n = int(0.05 * 2**20) // 4
    settings = written["settings"]
    assert (settings["data"], settings["type"], settings["values"], settings["repeats"]) == (
        "gradient",
        "float32",
        n,
        2,
    )
    assert settings["instruction_set"] == kernels().instruction_set
    assert [row["codec"] for row in written["rows"]] == ["none", "bf16", "int8:256", "zfp:8", "mpc", "2:4"]
    for row in written["rows"]:
        assert set(row["speeds"]) == set(OPERATIONS)
        for speed in row["speeds"].values():
            assert speed["best"] >= speed["median"] > 0


def test_figures_are_those_of_the_codecs(written: dict[str, Any]) -> None:
    x = data.make_values("gradient", written["settings"]["values"], np.dtype(np.float32))
    for row in written["rows"]:
        codec = get_codec(row["codec"])
        wire = np.zeros(codec.wire_bytes(x.size, x.dtype), np.uint8)
        used = codec.encode(x, wire)
        assert row["wire_bytes"] == used
        assert row["ratio"] == x.nbytes / used
        assert row["bits_per_value"] == 8 * used / x.size
        y = np.zeros_like(x)
        codec.decode(wire[:used], y)
        error = y.astype(np.float64) - x
        assert row["max_error"] == np.abs(error).max()
        expected = np.sqrt(np.square(error).sum() / np.square(x.astype(np.float64)).sum())
        assert row["relative_rmse"] == pytest.approx(expected, rel=1e-12)
        assert row["error_bound"] == codec.error_bound(x)
        assert row["non_finite"] == "kept" and row["broken"] is False


def test_the_table_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bench(monkeypatch, *NAMES, "--type", "bfloat16", "--output", str(tmp_path / "x.csv")) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == "" and lines[0].startswith("gradient, 0.05 MiB of bfloat16; one core of ")
    assert lines[1].split() == HEADINGS.split()
    cells = {line.split()[0]: line.split() for line in lines[2 : 2 + len(NAMES)]}
    assert list(cells) == ["none", "bf16", "int8:256", "zfp:8", "mpc", "2:4"]
    assert lines[-1].startswith("A copy of the values runs at ")
    assert cells["none"][1:3] == ["1.000", "16.00"] and cells["none"][-4:] == ["0", "0", "0", "kept"]
    assert all(len(row) == 1 + 2 + 2 * 4 + 2 + 4 for row in cells.values())
    with (tmp_path / "x.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["codec"] for row in rows] == list(cells)
    assert rows[0]["ratio"] == "1.0" and float(rows[3]["speeds.encode.best"]) > 0


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_keeps_to_the_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert bench(monkeypatch, *NAMES, "int8:256:stochastic") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("zfp:8 ") for line in lines) >= 2, "speeds and errors stand under each other"


def test_all_families_by_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(monkeypatch, "--data", "sparse", "--type", "float16") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2 : 2 + len(DEFAULT)]] == list(DEFAULT)


def test_every_build_gives_the_same_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = []
    for isa in ("generic", kernels().instruction_set):
        assert bench(monkeypatch, "zfp:8", "int4", "--isa", isa, "--output", str(tmp_path / "x.json")) == 0
        document = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
        assert document["settings"]["instruction_set"] == isa
        outcome.append([{key: row[key] for key in row if key != "speeds"} for row in document["rows"]])
    assert outcome[0] == outcome[1]


def test_a_broken_promise_is_told_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Quant, "error_bound", lambda self, x: 1e-9)
    assert bench(monkeypatch, "int8", "bf16") == 1
    assert "int8:256: its error" in capsys.readouterr().out.splitlines()[-1]


class Forgetful(Codec):
    """A codec that adds 1 to the first float32 value, zeroes NaN and infinity, and sends other values unchanged."""

    name = "forgetful"
    lossless = False
    fixed_size = True

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        return 4 * n

    def encode(self, x: Array, out: Array, *, residual: Array | None = None, seed: int = 0) -> int:
        values = np.where(np.isfinite(x), x, np.float32(0))
        values[0] += 1
        out[: x.nbytes] = values.view(np.uint8)
        return x.nbytes

    def decode(self, wire: Array, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        out[:] = wire.view(np.float32) + (out if accumulate else np.float32(0))

    def error_bound(self, x: Array) -> float | None:
        return None


def test_what_becomes_of_values_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    get = get_codec
    for module in ("hpcbench.bench.device", "hpcbench.bench.codecs"):
        monkeypatch.setattr(
            f"{module}.get_codec", lambda name, *build: Forgetful() if name == "f" else get(name, *build)
        )
    x = np.full(1000, 3, np.float32)
    result = codecs.measure(["f", "fp8e4m3", "int8"], x, Cpu(kernels()), 1)
    assert [row.non_finite for row in result.rows] == ["lost", "as NaN", "kept"]
    forgetful = result.rows[0]
    assert forgetful.max_error == 1.0 and forgetful.error_bound is None and not forgetful.broken
    assert forgetful.relative_rmse == pytest.approx(np.sqrt(1 / 9000))


def test_errors_are_of_finite_values_and_see_what_is_not() -> None:
    n = (1 << 20) + 5  # more than one slice
    x = np.ones(n, np.float32)
    x[[0, -1]] = np.nan, np.inf
    y = x.copy()
    y[0] = 7
    assert compute_errors(x, y) == Errors(0.0, 0.0), "what was not finite has no error"
    y[-2] = 1.5
    assert compute_errors(x, y) == Errors(0.5 / np.sqrt(n - 2), 0.5)
    for gone in (np.nan, np.inf):
        y[5] = gone
        assert compute_errors(x, y) == Errors(np.inf, np.inf)
    assert compute_errors(np.zeros(3, np.float32), np.ones(3, np.float32)).relative_rmse == np.inf


def test_turns_are_taken_by_all_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcbench.bench import timing

    order: list[str] = []
    clock = iter(range(1000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(clock)))
    subjects = [
        timing.Subject(name, {"encode": lambda name=name: order.append(name), "decode": lambda: None})  # type: ignore[misc]
        for name in ("a", "b")
    ]
    seen: list[tuple[int, int, str]] = []
    times = timing.time_in_turns(subjects, 3, progress=lambda *what: seen.append(what))
    assert order == ["a", "b"] * 4
    assert all(times[k]["encode"].seconds == (1.0, 1.0, 1.0) for k in range(2)), "the first turn does not count"
    assert seen[:3] == [(0, 8, "a"), (1, 8, "b"), (2, 8, "a")] and seen[-1] == (8, 8, "")
    assert timing.Times((3.0, 1.0, 2.0)).best == 1.0 and timing.Times((3.0, 1.0, 2.0)).median == 2.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "unknown codec 'nonsense'"),
        (["zfp"], "zfp:R with R from 4 to 32"),
        (["int8:100"], "codec 'int8:100'"),
        (["--type", "float64"], "--type float64: unknown value: use one of float32, float16, bfloat16"),
        (["--type", "bflaot16"], "did you mean 'bfloat16'?"),
        (["--isa", "avx1024"], "--isa avx1024: unknown value"),
        (["--device", "tpu"], "--device tpu: unknown value"),
        (["--device", "gpu", "--isa", "avx2"], "Leave --isa out with --device gpu"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--repeats", "many"], "Invalid value for '--repeats'"),
        (["--mib", "0"], "--mib 0: must be above 0"),
        (["--mib", "nan"], "--mib nan"),
        (["--output", "none/x.json"], "the directory none does not exist"),
        (["--output", "."], "--output .: is a directory"),
        (["--output", "x.pdf"], "is not the suffix of a format: use .txt, "),
        (["--data", "gradeint"], "no such data. Use one of gauss, "),
        (["--data", "a\nb.npy"], "no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_end_in_one_line(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.startswith("hpcbench: ") and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []
