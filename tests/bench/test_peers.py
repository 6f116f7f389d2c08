"""Tests that benchmarks/codecs.py runs with any set of installed packages, and compares its results with the goals."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("codecs_beside_peers", BENCHMARKS / "codecs.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, loaded)  # dataclasses look up the module there
    spec.loader.exec_module(loaded)
    return loaded


def rows(module: Any, **speeds: float) -> dict[str, Any]:
    """Return measured rows by name, with the same speed for all operations. The ratio is a tenth of the speed."""
    return {
        name: module.Measured(None, value / 10, None, dict.fromkeys(module.OPERATIONS, value))
        for name, value in speeds.items()
    }


def test_goals(module: Any) -> None:
    goal = module.Goal("encode", 12, ("zfp:8", "zfp:16"), "zfpy {}")
    both = {**rows(module, **{"zfp:8": 13.0, "zfpy 8": 1.0, "zfp:16": 24.0, "zfpy 16": 2.0})}
    assert module.judge(goal, {"float32": both}) == "zfp encode >= 12x zfpy, float32: 13.0x, 12.0x: reached"
    both |= rows(module, **{"zfp:16": 23.9})
    assert module.judge(goal, {"float32": both}).endswith("13.0x, 11.9x: MISSED at zfp:16")
    del both["zfpy 16"]
    assert module.judge(goal, {"float32": both}).endswith("not measured, float32 zfpy 16 is missing")

    ratio = module.Goal("ratio", 1.4, ("xpk",), types=("bfloat16",))
    result = {"bfloat16": rows(module, xpk=14.1)}
    assert module.judge(ratio, result) == "xpk ratio >= 1.4, bfloat16: 1.410: reached"
    assert module.judge(ratio, {"bfloat16": rows(module, xpk=13.9)}).endswith("1.390: MISSED")
    assert module.judge(ratio, {}).endswith("not measured, bfloat16 xpk is missing")


def test_every_goal_names_a_codec_and_rival_that_are_measured(module: Any) -> None:
    from hpcbench.bench.data import TYPES
    from hpcbench.codecs.library import kernels

    for goal in module.GOALS:
        for kind in goal.types:
            names = {entry.name for entry in module.entries(TYPES[kind], kernels())}
            assert set(goal.codecs) <= names
            if goal.rival:
                assert {goal.rival.format(codec.partition(":")[2]) for codec in goal.codecs} <= names


def test_a_peer_that_is_not_installed_keeps_its_rows(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import peers

    from hpcbench.bench.data import TYPES
    from hpcbench.codecs.library import kernels

    def result(dtype: str) -> list[Any]:
        entries: list[Any] = module.entries(TYPES[dtype], kernels())
        return entries

    real, before = peers.importlib.import_module, result("float32")
    assert all(entry.make for entry in before if entry.name.startswith(("zfp", "torch"))), "these are here"

    def lacking(name: str) -> Any:
        if name == "zfpy":
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(peers.importlib, "import_module", lacking)
    entries = {entry.name: entry for entry in result("float32")}
    assert list(entries) == [entry.name for entry in before]
    assert entries["zfpy 8"].make is None and entries["zfp:8"].rival == "" and entries["zfp:8"].make
    (column,) = (c for c in module.table([entries["zfpy 8"]], {}, "title").columns if c.header == "encode, decode vs")
    assert list(column.cells) == ["not installed"]


def test_two_cores() -> None:
    root = str(BENCHMARKS.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(BENCHMARKS / "codecs.py"), "--tiny", "--cores", "2", "--type", "float32"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == 0, done.stderr
    lines = [re.split("  +", line.strip()) for line in done.stdout.splitlines()]
    cells = {line[0]: line[1:] for line in lines}
    assert cells["zfp:8"][0] == cells["zfpy 8"][0] == "4.000", "the same bytes"
    assert cells["zfp:8"][4:6] == cells["zfpy 8"][3:5], "the same errors"
    verdicts = [line for line in done.stdout.splitlines() if ">=" in line]
    assert len(verdicts) == 12 and "not measured" in verdicts[0]
