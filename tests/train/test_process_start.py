"""Tests of setup lines and preloaded libraries in runs of the engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.train.process_start import SET_UP, add_preload, execute_setup, write_setup_script


def scheme(**fields: Any) -> NamedScheme:
    return NamedScheme(name="other", **fields)


def run_script(script: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script, "hpcbench", *command], capture_output=True, text=True, check=False)


def test_setup_lines_run_before_the_command_and_keep_its_arguments() -> None:
    script = write_setup_script(scheme(setup=["export A='x  y'", "B=2; export B # why"]))
    code = "import os, sys; print(os.environ['A'], os.environ['B'], sys.argv[1:])"
    done = run_script(script, sys.executable, "-c", code, "a b", "$c")
    assert done.stdout == "x  y 2 ['a b', '$c']\n", done.stderr


@pytest.mark.parametrize(
    "line", ["false", "exit_status() { return 3; }; exit_status", "false '%s' \"$HOME\" `echo x`", "no-such-command"]
)
def test_the_first_line_that_fails_ends_the_start(line: str) -> None:
    done = run_script(write_setup_script(scheme(setup=["true", line, "echo later"])), "echo", "started")
    assert done.returncode == 2 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"hpcbench: scheme other: setup: {line}: exit status ")


def test_setup_is_executed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[list[str]] = []
    monkeypatch.setattr(
        os, "execvpe", lambda file, words, variables: executed.append([file, variables[SET_UP], words[-1]])
    )
    execute_setup(scheme(setup=["true"]), ["python"], {})
    execute_setup(scheme(setup=["true"]), ["python"], {SET_UP: "other"})
    execute_setup(scheme(), ["python"], {})
    assert executed == [["bash", "other", "python"]]


def test_a_library_comes_before_others(tmp_path: Path) -> None:
    library = tmp_path / "x.so"
    with pytest.raises(UserError, match=r"scheme other: preload: .*x\.so does not exist on "):
        add_preload(scheme(preload=str(library)), {})
    library.touch()
    assert add_preload(scheme(preload=str(library)), {"LD_PRELOAD": "y.so"})["LD_PRELOAD"] == f"{library}:y.so"
    assert add_preload(scheme(), {"LD_PRELOAD": "y.so"}) == {"LD_PRELOAD": "y.so"}


def test_a_wrong_run_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schema": 1}), encoding="utf-8")
    command = [sys.executable, "-m", "hpcbench.train.process_start", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and str(path) in done.stderr


STUDY = """\
study: other
site: local
model: {layers: 1, hidden: 16, heads: 2, vocab: 256}
data: {source: stdlib}
train: {steps: 4, warmup_steps: 1, global_batch: 4, micro_batch: 2, seq_len: 16, eval_samples: 4}
layout: {dp: 2}
matrix: {scheme: [baseline, other]}
schemes:
  other: {preload: marker.so, setup: ["export SET_BY_SETUP=yes"], environment: {GIVEN: "a b"}}
repeats: 1
"""
MARKER = """\
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void mark(void) {
  const char *setup = getenv("SET_BY_SETUP");
  FILE *file = fopen("marks.txt", "a");
  if (file) { fprintf(file, "%s\\n", setup ? setup : "no"); fclose(file); }
}
"""


@pytest.mark.long
def test_a_run_of_the_engine_has_its_library_and_setup(tmp_path: Path) -> None:
    (tmp_path / "marker.c").write_text(MARKER, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "marker.so", "marker.c"], cwd=tmp_path, check=True)
    (tmp_path / "s.yaml").write_text(STUDY, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "hpcbench", "submit", "s.yaml", "--wait"], cwd=tmp_path, check=True)
    (submission,) = tmp_path.glob("results/other/*")
    marks = (submission / "marks.txt").read_text(encoding="utf-8").split()
    assert len(marks) == 2 and set(marks) == {"yes"}, "one mark per rank of the second run"
    for scheme, preload in (("baseline", None), ("other", str(tmp_path / "marker.so"))):
        lines = (submission / "runs" / f"r1-{scheme}" / "log.txt").read_text(encoding="utf-8").splitlines()
        events = {event["event"]: event for event in (json.loads(line) for line in lines if line.startswith("{"))}
        assert events["end"]["state"] == "completed"
        assert events["applied"]["preload"] == preload
        assert events["applied"]["environment"] == ({"GIVEN": "a b"} if preload else {})
        assert events["network"]["nodes"] == 1 and not events["network"]["problems"]
