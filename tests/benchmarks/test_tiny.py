"""Tests that every benchmark runs completely and prints figures."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from printed import Printed, numbers, positive
from stored_results import ROOT

from hpcbench.codecs.device import cuda

Tiny = Callable[..., Printed]
TOOLS = {"figures.py", "stored_reports.py"}
"""Scripts that measure nothing."""
SCRIPTS = [
    path
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if path.name not in TOOLS and '__name__ == "__main__"' in path.read_text()
]
MISSING = "not installed"

try:
    cuda()
    NO_GPU = ""
except (ImportError, RuntimeError) as error:
    NO_GPU = str(error)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_benchmark_has_a_tiny_form_that_is_tested(script: Path) -> None:
    """A test runs every script in its tiny form and checks its provenance."""
    tests = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert any(f'"{script.name}"' in text and re.search(r"\btiny\(|--tiny", text) for text in tests)
    assert "from provenance import" in script.read_text()


def test_checksum(tiny: Tiny) -> None:
    printed = tiny("checksum.py")
    for codec in ("none", "int8:256", "int4:32", "zfp:8", "zfp:16", "mpc"):
        *times, cost = printed.row(codec)
        assert positive(times, 2) and re.fullmatch(r"[+-]\d+\.\d%", cost)
    assert re.fullmatch(r"256 KiB: checksum \d+ GB/s, CRC-32 of zlib [\d.]+ GB/s", printed.lines[-1])


@pytest.mark.long
def test_staleness(tiny: Tiny, tmp_path: Path) -> None:
    """Synchronous and asynchronous methods are each compared with their own reference."""
    file = tmp_path / "rows.json"
    tiny("staleness.py", "--json", str(file))
    rows = {row["way"]: row for row in json.loads(file.read_text())["rows"]}
    assert {way: row["against"] for way, row in rows.items()} == {
        "1f1b": None,
        "pipedream": "1f1b",
        "all-reduce": None,
        "asp": "all-reduce",
    }
    assert rows["1f1b"]["staleness"] == rows["all-reduce"]["staleness"] == {"0": 1.0}
    assert set(rows["pipedream"]["staleness"]) == {"0", "1"}
    assert all(rows[way]["pairs"] == 1 and rows[way]["basis"] == "validation" for way in ("pipedream", "asp"))
    assert all(0 < row["waiting_part"] < 1 for row in rows.values())


def test_partition(tiny: Tiny) -> None:
    printed = tiny("partition.py")
    rows = [row for row in printed.rows() if row[0] == "8"]
    assert len(rows) == 12 and {row[2] for row in rows} == {"4"}
    assert [row[-1] for row in rows if "hundredth" in row[4]] == ["0"] * 4, "no cut fits"


def test_half_sums(tiny: Tiny) -> None:
    printed = tiny("half_sums.py")
    for name in ("fp32, MPI library", "fp16, our loop", "bf16, our loop"):
        assert positive(printed.row(name), 4)
    assert re.fullmatch(r"fp16 messages of the baseline are summed by: .*(type|operation)", printed.lines[-1])


def test_correlated_rounding(tiny: Tiny) -> None:
    """With two ranks, correlated rounding has no effect. With eight ranks, most of the additional error is canceled."""
    rows = {
        tuple(row[:2]): numbers(row[2:])
        for row in tiny("correlated_rounding.py").rows()
        if row[1:] and row[1].isdigit()
    }
    for codec in ("int4:32", "int8:256", "int4:32/256:nonuniform"):
        assert rows[codec, "2"] == pytest.approx([2**0.5, 2**0.5], abs=0.04)
        assert rows[codec, "8"] == pytest.approx([2**0.5, 1.09], abs=0.04)


@pytest.mark.long
def test_attention(tiny: Tiny, tmp_path: Path) -> None:
    """The output contains a row for each method and one for a single process, and bytes equal the closed forms."""
    file = tmp_path / "attention.json"
    printed = tiny("attention.py", "--json", str(file))
    n = 4 * 8 * 32 * 64
    for way, nbytes in (("ring", 6 * n), ("rsa", 6 * n), ("ulysses", 8 * n // 2)):
        for how in ("in turn", "beside"):
            assert positive(printed.row(f"{way}, {how}")[1:2], 1)
            assert printed.row(f"{way}, {how}")[-1] == f"{nbytes / 1e6:.3f}"
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 7 and rows[0]["name"] == "one process" and rows[0]["bytes"] == 0


@pytest.mark.long
def test_trace_cost(tiny: Tiny, tmp_path: Path) -> None:
    """Without a trace, the checks take almost no time on any machine."""
    file = tmp_path / "steps.json"
    printed = tiny("trace_cost.py", "--json", str(file))
    result = json.loads(file.read_text())
    assert positive(printed.row("on"), 2) and len(result["on"]) == len(result["off"]) == 2
    assert re.fullmatch(r"on: [+-][\d.]+% of a step \([+-][\d.]+% to [+-][\d.]+%\)", printed.lines[-2])
    matched = re.fullmatch(r"off: (\d+) questions of \d+ ns: ([\d.]+) % of a step", printed.lines[-1])
    assert matched and int(matched[1]) > 10 and float(matched[2]) < 0.1


def test_codecs(tiny: Tiny) -> None:
    """Bytes and errors are the same as with zfpy. Installed and missing peers have one row each."""
    printed = tiny("codecs.py")
    parts = "\n".join(printed.lines).split("\n\n")
    cells = {row[0]: row[1:] for row in Printed(parts[0].splitlines()).rows()}
    assert cells["mpc"][4:6] == ["0", "0"] and cells["memcpy"][0] == "1.000"
    assert cells["zfp:8"][0] == cells["zfpy 8"][0] and 3.9 < float(cells["zfp:8"][0]) <= 4, "the same bytes"
    assert cells["zfp:8"][4:6] == cells["zfpy 8"][3:5], "the same errors"
    halves = {row[0]: row[1:] for row in Printed(parts[1].splitlines()).rows()}
    for name in ("blosc2 bitshuffle+lz4", "blosc2 shuffle+zstd", "pcodec", "pcodec level 0", "zstd 1", "lz4"):
        for row in (cells[name], halves[name]):
            assert row[-1] == MISSING or (float(row[0]) > 0 and min(numbers(row[:3])) >= 0)  # 0.00 where others compute
    verdicts = [line for line in printed.lines if ">=" in line]
    assert len(verdicts) == 12 and all(re.search(r": (reached|MISSED.*|not measured, .*)$", line) for line in verdicts)


def test_codecs_need_a_gpu(refused: Callable[..., str]) -> None:
    """Without CuPy, the message names CuPy. With CuPy, the message says that CUDA finds no GPU."""
    assert re.search(r"on a GPU need CuPy|CUDA cannot use a GPU on this machine", refused("codecs_gpu.py"))


@pytest.mark.gpu
@pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)
def test_codecs_on_a_gpu(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    printed = tiny("codecs_gpu.py", "--json", str(file))
    document = json.loads(file.read_text())
    assert set(document["provenance"]) == {"command", "revision", "machine"}
    rows = {row["name"]: row for row in document["rows"]}
    assert rows["zfp:8"]["ratio"] == pytest.approx(4, rel=0.01) and rows["mpc"]["rmse"] == 0
    assert rows["int8:256"]["speeds"]["encode"]["gb_per_s"] > 0
    text = "\n".join(printed.lines)
    assert all(peer in text for peer in ("torch", "nvCOMP", "cuZFP"))


def test_training_needs_a_gpu(refused: Callable[..., str]) -> None:
    assert "PyTorch detects no GPU here" in refused("train_gpu.py")


@pytest.mark.long
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)]),
    ],
)
def test_training_on_a_device(tiny: Tiny, device: str, tmp_path: Path) -> None:
    printed = tiny("train_gpu.py", "--device", device, "--out", str(tmp_path))
    rows = {
        cells[0]: cells[1:] for line in printed.lines if len(cells := line.strip("│").replace(" ", "").split("│")) > 1
    }
    for scheme in ("baseline", "naive-int8"):
        loss, *speeds, memory, buffers, state = rows[scheme]
        assert state == "completed" and 3 < float(loss) < 6 and positive(speeds, 4)
        assert (memory == buffers == "-") == (device == "cpu")
    assert rows["baseline"][3] == "1.000" and float(rows["naive-int8"][3]) < 0.6


@pytest.mark.long
def test_convergence(tiny: Tiny) -> None:
    printed = tiny("convergence.py")
    assert any(re.fullmatch(r"2 runs: [\d.]+ h without evaluations", line) for line in printed.lines)
    losses = [cells for cells in printed.rows() if cells[0] in ("baseline", "naive-zfp8")]
    assert len(losses) == 6, "the comparison and two parts of the losses; no prediction that rests on assumptions"
    (_, *base), (_, *lossy) = losses[:2]
    assert base[-1] == "1.000" and lossy[-1] == "0.250"
    assert all(3 < float(cells[1]) < 6 for cells in losses[2:4])


def test_report(tiny: Tiny) -> None:
    printed = tiny("report.py")
    assert positive(printed.row("50")[1:5], 4)
    assert [line.split(":")[0] for line in printed.lines[-2:]] == ["time", "memory"]
    assert all(re.search(r", goal \d+ (s|MB): (met|missed)$", line) for line in printed.lines[-2:])


def test_dry_run(tiny: Tiny) -> None:
    """Peers that are not installed still have their rows."""
    result: dict[tuple[str, str], list[str]] = {}
    for cells in tiny("dry_run.py").rows():
        result[cells[0], cells[1]] = cells[2:]
    for runs in ("1", "10"):
        assert positive(result[runs, "hpcbench"], 4)
        for peer in ("ReFrame", "JUBE"):
            assert result[runs, peer] == [MISSING, "-", "-", "-"] or positive(result[runs, peer], 4)


def test_tensor_projection(tiny: Tiny) -> None:
    """The output of the projection contains its sources and the published figures."""
    printed = tiny("tensor_projection.py")
    assert [line.split(":")[0] for line in printed.lines[:3]] == ["measured", "data sheets", "assumed"]
    rows = {(cells[0], cells[1]): cells[2:] for cells in printed.rows() if cells[0] in ("8", "64")}
    assert {mode for ranks, mode in rows if ranks == "64"} == {"1d", "2d", "2.5d (depth 4)", "3d"}
    assert all(positive(cells, 6) for cells in rows.values())
    assert float(rows["64", "3d"][4]) < float(rows["64", "2d"][4]) < float(rows["64", "1d"][4]), "bytes a GPU"
    last = printed.lines[-2:]
    assert all("published 2.32 x" in line and "published 1.57 x" in line for line in last)


@pytest.mark.long
def test_plain_calls(tiny: Tiny, tmp_path: Path) -> None:
    """The output contains a row for each size and mode, with a ratio to plain gloo, and the time of a stack search."""
    file = tmp_path / "calls.json"
    printed = tiny("plain_calls.py", "--bytes", "4", "65536", "--json", str(file))
    stored = json.loads(file.read_text())
    assert [(row["bytes"], row["mode"], len(row["seconds"])) for row in stored["rows"]] == [
        (nbytes, mode, 2) for nbytes in (4, 65536) for mode in ("plain gloo", "handed on", "auto int8")
    ]
    assert "1.000 (1.000 to 1.000)" in next(line for line in printed.lines if "65536  plain gloo" in line)
    matched = re.fullmatch(r"a search of the stack under 20 frames more takes ([\d.]+) us", printed.lines[-1])
    assert matched and float(matched[1]) > 0


@pytest.mark.long
def test_torch_collectives(tiny: Tiny) -> None:
    printed = tiny("torch_collectives.py")
    modes = ("plain gloo", "interposed", "no codec", "bf16", "int8", "zfp:8", "xpk", "auto int8")
    for mode in (*modes, "fp16 hook", "PowerSGD hook"):
        assert positive(printed.row(mode), 2)
    assert printed.row("plain gloo")[1] == "1.00"
    cost, bare, auto = printed.lines[-3:]
    assert re.fullmatch(r"a plain call costs -?[\d.]+ us more \(at most 20\): not decided by one repeat", cost)
    assert re.fullmatch(r"a kernel in Python that only hands it on costs -?[\d.]+ us more", bare)
    assert re.fullmatch(r"the slowest of 1 with auto: [\d.]+ x, all-reduce of 65536 B .*: not decided by one .*", auto)
