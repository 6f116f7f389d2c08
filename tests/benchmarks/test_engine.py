"""Tests of benchmarks/engine.py: peers are comparable, ratios are paired, and verdicts follow from intervals."""

import importlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from printed import Printed
from stored_results import ROOT

from hpcbench.comm.wait import Wait
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


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("engine")


@pytest.mark.long
def test_all_contenders_do_the_same_work_in_turns(engine: Any, tiny: Callable[..., Printed], tmp_path: Path) -> None:
    """The benchmark itself compares the losses, and ends if they differ."""
    file = tmp_path / "turns.json"
    printed = tiny("engine.py", "--json", str(file))
    document = json.loads(file.read_text())
    item, spread = document["measured"]
    assert [row["name"] for row in item["rows"]] == ONE
    assert {row["name"]: row["transport"] for row in spread["rows"]} == SPREAD
    for measured in (item, spread):
        rows = {row["name"]: row for row in measured["rows"]}
        reference = engine.fastest(measured["rows"])
        assert reference["name"] in (ONE[:2] if measured is item else list(SPREAD)[:2]), "on the same transport"
        for name, row in rows.items():
            cells = printed.row(name)
            if "lack" in row:
                assert name == "FSDP2" and row["lack"] in cells[-1]
                continue
            for total, gradients, optimizer in row["turns"]:
                assert min(gradients, optimizer) > 0 and len(row["turns"]) == 2
                assert max(gradients, optimizer) <= total
            if row is not reference:
                ratio = paired_ratio(engine.seconds(row), engine.seconds(reference))
                assert engine.shown(ratio) in cells
        current = next(rows[name] for name in engine.OURS if name in rows)
        ratio = paired_ratio(engine.seconds(current), engine.seconds(reference))
        goal = next(line for line in printed.lines if re.search(rf"^goal, .* {reference['name']}: ", line))
        assert goal.strip().endswith(engine.verdict(ratio, 1.03 if measured is item else 1.0))


@pytest.mark.parametrize(
    ("low", "high", "phrase"),
    [(0.9, 1.0, "met"), (0.9, 1.001, "not decided"), (1.0, 1.1, "not decided"), (1.001, 1.1, "missed")],
)
def test_a_verdict_needs_the_whole_interval(engine: Any, low: float, high: float, phrase: str) -> None:
    assert engine.verdict(Interval((low * high) ** 0.5, low, high, 9), 1.0) == phrase


def test_one_turn_decides_nothing(engine: Any) -> None:
    assert engine.verdict(paired_ratio([1.0], [2.0]), 1.0) == "not decided"


def test_the_reference_is_the_fastest_of_the_same_turns_among_fair_peers(engine: Any) -> None:
    """The reference does not have the smallest time, which was measured in a turn where the machine was faster."""

    def row(name: str, *times: float, fair: bool = True) -> dict[str, Any]:
        return {"name": name, "fair": fair, "turns": [[seconds, 0, 0] for seconds in times]}

    rows = [row("a", 1.0, 5.0, 5.0), row("b", 1.1, 4.0, 4.9), row("elsewhere", 0.1, 0.1, 0.1, fair=False)]
    rows.append({"name": "lacking", "fair": True, "lack": "not here"})
    assert engine.fastest(rows)["name"] == "b"


def test_other_work_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that differs by more than rounding errors ends the benchmark, unless the measured program is lossy."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    same_work = importlib.import_module("engine_turns").same_work
    reference = [4.0, 3.9]
    same_work({"a": reference, "b": [4.00003, 3.9]}, {"a": True, "b": True})
    same_work({"a": reference, "b": [4.1, 3.9]}, {"a": True, "b": False})
    with pytest.raises(SystemExit, match="b does other work"):
        same_work({"a": reference, "b": [4.0001, 3.9]}, {"a": True, "b": True})
    with pytest.raises(SystemExit, match="b does other work"):
        same_work({"a": reference, "b": [float("nan"), 3.9]}, {"a": True, "b": False})


class Library:
    """A fake MPI library whose sums over two ranks are completed by the test."""

    size = 2

    def __init__(self) -> None:
        self.ended: list[bool] = []
        self.tested = threading.Event()

    def Iallreduce(self, where: Any, values: Any) -> Any:  # noqa: N802
        number = len(self.ended)
        self.ended.append(False)

        def test() -> bool:
            self.tested.set()
            if self.ended[number]:
                values[:] *= 2  # the other rank holds the same values
            return self.ended[number]

        return SimpleNamespace(Test=test)


def test_a_bucket_is_given_back_when_its_sum_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each future completes only when its sum is complete, whichever of the two sums is completed first."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    library = Library()
    hook = importlib.import_module("engine_peers").Iallreduce(library, Wait.GIVE_WAY)
    buckets = [torch.full((3,), float(k)) for k in (1, 2)]
    futures = [hook(None, SimpleNamespace(buffer=lambda values=values: values)) for values in buckets]
    library.tested.clear()
    assert library.tested.wait(60) and not any(future.done() for future in futures)
    library.ended[1] = True
    assert futures[1].wait().tolist() == [2.0] * 3 and not futures[0].done()
    library.ended[0] = True
    assert futures[0].wait().tolist() == [1.0] * 3, "the mean of the ranks"
