"""benchmarks/engine.py: fair peers are there, ratios are paired, a verdict says no more than its interval."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from printed import Printed
from stored_results import ROOT

from hpcbench.report.statistics import Interval, paired_ratio

GLOO = "gloo, TCP over loopback"
ONE = ["PyTorch, AdamW", "PyTorch, fused AdamW", "hpcbench", "hpcbench, PyTorch's fused AdamW"]
SPREAD = {
    "DDP, MPI_Allreduce": "MPI",
    "DDP, MPI_Iallreduce": "MPI",
    "DDP": GLOO,
    "DDP, fp16 hook": GLOO,
    "DDP, PowerSGD": GLOO,
    "FSDP2": GLOO,
    **{f"hpcbench {name}": "MPI" for name in ("baseline", "identity", "fp16", "bf16", "int8", "zfp8")},
    "hpcbench baseline, PyTorch's fused AdamW": "MPI",
}


@pytest.fixture(scope="module")
def engine() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import engine as module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


def test_all_contenders_do_the_same_work_in_turns(engine: Any, tiny: Callable[..., Printed], tmp_path: Path) -> None:
    """The benchmark itself compares their losses, and ends where they differ."""
    file = tmp_path / "turns.json"
    printed = tiny("engine.py", "--json", str(file))
    document = json.loads(file.read_text())
    one, spread = document["measured"]
    assert [row["name"] for row in one["rows"]] == ONE
    assert {row["name"]: row["transport"] for row in spread["rows"]} == SPREAD
    for measured in (one, spread):
        rows = {row["name"]: row for row in measured["rows"]}
        reference = engine.fastest(measured["rows"])
        assert reference["name"] in (ONE[:2] if measured is one else list(SPREAD)[:2]), "on the same transport"
        for name, row in rows.items():
            cells = printed.row(name)
            if "lack" in row:
                assert name == "FSDP2" and row["lack"] in cells[-1]
                continue
            for whole, gradients, optimizer in row["turns"]:
                assert min(gradients, optimizer) > 0 and len(row["turns"]) == 2
                assert max(gradients, optimizer) <= whole
            if row is not reference:
                ratio = paired_ratio(engine.seconds(row), engine.seconds(reference))
                assert engine.shown(ratio) in cells
        own = next(rows[name] for name in engine.OURS if name in rows)
        ratio = paired_ratio(engine.seconds(own), engine.seconds(reference))
        goal = next(line for line in printed.lines if re.search(rf"^goal, .* {reference['name']}: ", line))
        assert goal.strip().endswith(engine.verdict(ratio, 1.03 if measured is one else 1.0))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.9, 1.0, "met"), (0.9, 1.001, "not decided"), (1.0, 1.1, "not decided"), (1.001, 1.1, "missed")],
)
def test_a_verdict_needs_the_whole_interval(engine: Any, low: float, high: float, words: str) -> None:
    assert engine.verdict(Interval((low * high) ** 0.5, low, high, 9), 1.0) == words


def test_one_turn_decides_nothing(engine: Any) -> None:
    assert engine.verdict(paired_ratio([1.0], [2.0]), 1.0) == "not decided"


def test_the_reference_is_the_fastest_of_the_same_turns_among_fair_peers(engine: Any) -> None:
    """Not the smallest median: the machine was slow in the second one's turns, and in the first one's of these, too."""

    def row(name: str, *times: float, fair: bool = True) -> dict[str, Any]:
        return {"name": name, "fair": fair, "turns": [[seconds, 0, 0] for seconds in times]}

    rows = [row("a", 1.0, 5.0, 5.0), row("b", 1.1, 4.0, 4.9), row("elsewhere", 0.1, 0.1, 0.1, fair=False)]
    rows.append({"name": "lacking", "fair": True, "lack": "not here"})
    assert engine.fastest(rows)["name"] == "b"


def test_other_work_is_not_timed() -> None:
    """A loss that is off by more than rounding ends the benchmark; a lossy one may be off by more."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from engine_turns import same_work
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    reference = [4.0, 3.9]
    same_work({"a": reference, "b": [4.00003, 3.9]}, {"a": True, "b": True})
    same_work({"a": reference, "b": [4.1, 3.9]}, {"a": True, "b": False})
    with pytest.raises(SystemExit, match="b does other work"):
        same_work({"a": reference, "b": [4.0001, 3.9]}, {"a": True, "b": True})
    with pytest.raises(SystemExit, match="b does other work"):
        same_work({"a": reference, "b": [float("nan"), 3.9]}, {"a": True, "b": False})
