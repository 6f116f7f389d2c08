"""Tests that run the benchmarks on virtual hosts completely."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from printed import Printed, positive
from stored_results import ROOT

from hpcbench.testing.hosts import why_not

Tiny = Callable[..., Printed]


@pytest.mark.long
def test_dispatch(tiny: Tiny, need: Callable[[str | None], None]) -> None:
    """Every method returns the same values as gloo, except the codec, which has errors and sends fewer bytes."""
    need(why_not())
    printed = tiny("dispatch.py")
    rows = [cells for line in printed.lines if (cells := line.split())[:1] == ["32"]]
    assert len(rows) == 8, "two kinds of parts, four ways each"
    sent, wire, error = ([row[k] for row in rows] for k in (-3, -2, -1))
    assert [float(item) > 0 for item in error] == 2 * [False, False, False, True]
    assert sent[0] == wire[0] == wire[1] == wire[2] and 0.2 < float(wire[3]) / float(sent[3]) < 0.35
    assert rows[0][-4] == "1.000" and all(float(row[-4]) > 0 for row in rows)


def test_links(tiny: Tiny, need: Callable[[str | None], None]) -> None:
    """Each message has a row, and no message is faster than its link."""
    need(why_not())
    rows = [cells for cells in tiny("links.py").rows() if cells[0] == "200mbit"]
    assert [cells[1] for cells in rows] == ["4 KiB", "16 KiB", "64 KiB", "8 x 64 KiB", "512 KiB", "4 MiB"]
    for _, _, link, least, *others in rows:
        assert positive([link, *others], 4) and float(least) >= 0.9


@pytest.mark.long
def test_throttled_allreduce(tiny: Tiny, need: Callable[[str | None], None], tmp_path: Path) -> None:
    need(why_not())
    file = tmp_path / "rows.json"
    printed = tiny("throttled_allreduce.py", "--json", str(file))
    document = json.loads(file.read_text())
    assert document["provenance"]["command"].endswith(f"--json {file}")
    assert (document["hosts"], document["ranks_per_host"]) == (2, 1)
    for row in document["rates"]["1gbit"]:
        by, *figures = printed.row(row["scheme"])
        assert by.startswith(row["algorithm"])
        assert figures[0] == f"{row['seconds'] * 1e3:.1f}" and figures[1] == f"{row['speedup']:.2f}"
    assert printed.row("native")[3] == "-" and positive(printed.row("int8:256 encoded")[1:], 3)


@pytest.mark.long
def test_tensor_scaling(tiny: Tiny, need: Callable[[str | None], None], tmp_path: Path) -> None:
    """Every mode has a row for strong scaling and one for weak scaling.

    The bytes of a mode do not depend on the links.
    """
    need(why_not())
    file = tmp_path / "runs.json"
    printed = tiny("tensor_scaling.py", "--json", str(file))
    document = json.loads(file.read_text())
    rows = [cells for cells in printed.rows() if cells[0] in ("1", "4")]
    assert len(rows) == 2 * (5 + 4), "rates; strong and weak; of each mode two schemes, of one rank one, strong only"
    sent = {tuple(cells[:3]): float(cells[6]) for cells in rows}
    assert {tuple(cells[:3]): float(cells[6]) for cells in rows[:5]} == sent, "bytes do not depend on links"
    assert sent["4", "2d", "baseline"] > sent["4", "1d", "baseline"] > sent["1", "1d", "baseline"] == 0
    assert all(run["passes"] < run["seconds"] and run["replicas_agree"] for run in document["runs"])


@pytest.mark.long
def test_slow_programs(tiny: Tiny, tmp_path: Path) -> None:
    """The study's unchanged script runs without and with a codec. The report is printed, and its values are stored."""
    printed = tiny("slow_programs.py", "--json", str(tmp_path))
    (cell,) = json.loads((tmp_path / "slow-programs-ddp.json").read_text())["submissions"][0]["cells"]
    assert sorted(run["scheme"] for run in cell["runs"]) == ["baseline", "identity", "naive-int8"]
    assert any(line.startswith("program-slow-links-ddp on local: python programs/gpt_ddp.py") for line in printed.lines)
    speed = printed.lines[printed.lines.index("Step time and throughput") :]
    pair = r"[\d.]+ \(1 pair\)"
    for scheme, gain in (("baseline", "-"), ("identity", pair), ("naive-int8", pair)):
        row = next(line for line in speed if line.startswith(scheme))
        mean, median, p95, p99, rate = [r"[\d.]+(?: \([\d.]+ to [\d.]+\))?"] * 5
        assert re.match(rf"{scheme} +{mean} +{median} +{p95} +{p99} +{rate} +{gain} ", row), row


@pytest.mark.long
def test_diagnosed_gain(tiny: Tiny, need: Callable[[str | None], None], tmp_path: Path) -> None:
    """The traced steps wait for the slow link. The output shows the diagnosed gain and the measured gain of int8."""
    need(why_not())
    file = tmp_path / "rows.json"
    printed = tiny("diagnosed_gain.py", "--json", str(file))
    (row,) = json.loads(file.read_text())["rows"]
    rate, exposed, transfer, bound, int8, identity, gain, *_ = printed.row("ddp")
    assert (rate, exposed, transfer) == ("100mbit", f"{row['exposed']:.1%}", f"{row['transfer']:.1%}")
    assert (bound, int8, identity) == tuple(f"{value:.2f}" for value in (row["bound"], *row["int8"], *row["identity"]))
    assert gain == f"{row['int8'][0] / row['identity'][0]:.2f}"
    assert 0.1 < row["transfer"] <= row["exposed"] < 1 and 1 < row["bound"] < 1 / (1 - row["transfer"]) + 1e-9


@pytest.mark.parametrize(
    ("transfer", "bound", "gains", "verdict"),
    [
        (0.8, 3.0, [2.5, 2.6, 2.55], "holds"),
        (0.8, 2.0, [2.5, 2.6, 2.55], "ABOVE THE BOUND"),
        (0.8, 3.0, [1.5, 1.51, 1.52], "BELOW 60 % OF THE BOUND"),
        (0.4, 3.0, [1.5, 1.51, 1.52], "holds"),
        (0.8, 2.5, [1.9, 2.6, 3.0], "undecided"),
        (0.8, 2.5, [2.4], "holds"),
    ],
)
def test_whether_a_bound_holds(
    transfer: float, bound: float, gains: list[float], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    diagnosed_gain = import_module("diagnosed_gain")
    assert diagnosed_gain.Row("ddp", "100mbit", transfer, transfer, bound, gains, [1.0] * len(gains)).verdict == verdict
