"""benchmarks/codecs.py runs with whatever is installed, and judges goals by the figures."""

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
    monkeypatch.setitem(sys.modules, spec.name, loaded)  # dataclasses look for it there
    spec.loader.exec_module(loaded)
    return loaded


def rows(module: Any, **speeds: float) -> dict[str, Any]:
    """Measured rows by name with the speed of all operations; the ratio is a tenth of it."""
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
    found = {"bfloat16": rows(module, xpk=14.1)}
    assert module.judge(ratio, found) == "xpk ratio >= 1.4, bfloat16: 1.410: reached"
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


@pytest.mark.parametrize("cores", ["1", "2"])
def test_it_runs(cores: str) -> None:
    root = str(BENCHMARKS.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(BENCHMARKS / "codecs.py"), "--mib", "0.1", "--repeats", "1", "--cores", cores]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == 0, done.stderr
    lines = [re.split("  +", line.strip()) for line in done.stdout.partition("bfloat16;")[0].splitlines()]
    cells = {line[0]: line[1:] for line in lines}
    assert cells["zfp:8"][0] == cells["zfpy 8"][0] == "4.000", "the same bytes"
    assert cells["zfp:8"][4:6] == cells["zfpy 8"][3:5], "the same errors"
    assert cells["mpc"][4:6] == ["0", "0"] and cells["memcpy"][0] == "1.000"
    verdicts = [line for line in done.stdout.splitlines() if ">=" in line]
    assert len(verdicts) == 11 and ("not measured" in verdicts[0]) == (cores == "2")
