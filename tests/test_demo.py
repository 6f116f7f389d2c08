"""Test of `make demo` with two short runs: over a link between virtual hosts if possible, otherwise in memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.resources import data_dir
from hpcbench.testing.hosts import why_not

DEMO = data_dir("studies") / "demo.sh"
SHORT = ["train.steps=3", "train.warmup_steps=1", "matrix.scheme=[baseline, naive-int8]", "repeats=1"]


@pytest.mark.long
@pytest.mark.parametrize("site", ["virtual-hosts", "local"])
def test_the_demo_answers(site: str, tmp_path: Path, need: Callable[[str | None], None]) -> None:
    need(why_not() if site == "virtual-hosts" else None)
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if site == "local":
        cannot = tmp_path / "bin" / "hpcbench-virtual-hosts"
        cannot.parent.mkdir()
        cannot.write_text("#!/bin/sh\necho namespaces are denied\nexit 1\n")
        cannot.chmod(0o755)
        path.insert(0, str(cannot.parent))
    done = subprocess.run(
        ["bash", str(DEMO), *(word for value in SHORT for word in ("--set", value))],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=1800,  # usually half a minute
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert ("shared memory" in first and "namespaces are denied" in first) == (site == "local")
    text = done.stdout.partition(f"demo on {site}: gpt-tiny")[2]
    assert "naive-int8" in text
    assert text.index("What to type next") > text.index("results/demo/report.html")
    assert {path.name for path in tmp_path.iterdir()} - {"bin"} == {"results"}, "git ignores only this"
    assert "naive-int8" in (tmp_path / "results" / "demo" / "report.html").read_text(encoding="utf-8")


def test_a_failed_step_ends_the_demo_with_its_status(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(
        ["bash", str(DEMO), "--set", "train.steps=0"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and "train.steps" in done.stderr
    assert "What to type next" not in done.stdout
