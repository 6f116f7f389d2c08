"""Tests that unmodified framework scripts run under torchrun, if the framework is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpcbench.testing.hosts import why_not

HERE = Path(__file__).parent / "frameworks"
STUDIES = Path(__file__).parents[2] / "studies"
SCHEMES = {
    "int8 on dp": 'rules: [{dimension: DP, codec: "int8:256"}]\n',
    "hybrid": 'default: xpk\nrules: [{dimension: DP, codec: "int8:256"}]\n',
}
PROGRAMS = {
    "transformers": ("trainer.py", "int8 on dp", {"all-reduce"}),
    "lightning": ("lightning_fit.py", "hybrid", {"all-reduce"}),
    "deepspeed": ("deepspeed_zero.py", "hybrid", {"all-reduce", "reduce-scatter"}),  # of stages 1 and 3
}
"""Script of each framework, the scheme that compresses its messages, and the compressed calls."""
RESULT = re.compile(r"result (\{.*?\})")
pytestmark = pytest.mark.long


def run_script(script: str, options: list[str], directory: Path) -> list[dict[str, Any]]:
    """Run a script on two ranks, and return the result of each rank.

    If options are given, the script runs under `hpcbench run`.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(HERE / script)]
    if options:
        out = ["--out", str(directory / "sent"), "--groups", str(directory / "groups.yaml")]
        command = [sys.executable, "-m", "hpcbench", "run", *options, *out, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return sorted((json.loads(text) for text in RESULT.findall(done.stdout)), key=lambda result: int(result["rank"]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_of_a_framework(name: str, tmp_path: Path, need: Callable[[str | None], None]) -> None:
    need(f"{name} is missing: pip install '.[frameworks]'" if find_spec(name) is None else None)
    groups = "min_bytes: 4096\nlayout: [{dimension: DP, size: 2}]\n"  # DeepSpeed does not describe its groups
    (tmp_path / "groups.yaml").write_text(groups, encoding="utf-8")
    script, scheme, calls = PROGRAMS[name]
    plain = run_script(script, [], tmp_path)
    assert len(plain) == 2 and len({result["digest"] for result in plain}) == 1
    if name == "deepspeed":  # programs without frameworks show for other calls that interception changes nothing
        assert run_script(script, ["--dry"], tmp_path) == plain
    path = tmp_path / "scheme.yaml"
    path.write_text(SCHEMES[scheme], encoding="utf-8")
    compressed = run_script(script, ["--scheme", str(path)], tmp_path)
    rows = [
        row
        for rank in range(2)
        for row in json.loads((tmp_path / "sent" / f"rank-{rank}.json").read_text(encoding="utf-8"))["rows"]
    ]
    encoded = [row for row in rows if row["codec"]]
    assert {row["dimension"] for row in encoded} == {"DP"} and {row["call"] for row in encoded} == calls, rows
    assert len({result["digest"] for result in compressed}) == 1
    assert compressed[0]["digest"] != plain[0]["digest"]
    for before, after in zip(plain, compressed, strict=True):
        assert after["losses"] == pytest.approx(before["losses"], rel=0.02)


def test_switches_of_deepspeed_are_compared_in_pairs(tmp_path: Path, need: Callable[[str | None], None]) -> None:
    """With ZeRO 3 on two ranks, the reduced gradients are two thirds of all bytes, and bf16 halves them."""
    need(why_not())
    need("deepspeed is missing: pip install '.[frameworks]'" if find_spec("deepspeed") is None else None)
    shutil.copytree(STUDIES / "programs", tmp_path / "programs")
    study = (STUDIES / "program-deepspeed.yaml").read_text(encoding="utf-8")
    for before, after in (("repeats: 5", "repeats: 1"), ("--layers 4", "--layers 1"), ("[1, 3]", "[3]")):
        assert before in study
        study = study.replace(before, after)
    (tmp_path / "study.yaml").write_text(study.replace(", naive-int8]", "]"), encoding="utf-8")
    variables = {**os.environ, "DS_ACCELERATOR": "cpu"}
    for command in (["submit", "study.yaml", "--wait"], ["report", "--format", "json", "--output", "report.json"]):
        arguments = [sys.executable, "-m", "hpcbench", *command]
        subprocess.run(arguments, cwd=tmp_path, check=True, capture_output=True, env=variables)
    (cell,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["submissions"][0]["cells"]
    plain, half = cell["schemes"]
    assert (plain["scheme"], half["scheme"]) == ("baseline", "deepspeed-bf16")
    assert 0.55 < half["network_bytes_per_step"] / plain["network_bytes_per_step"] < 0.75
    assert half["loss_valid"] == pytest.approx(plain["loss_valid"], rel=0.02)
    assert (half["kind"], half["speed_ratio"]["pairs"]) == ("other_system", 1)
