"""Tests of the diagnosis of the engine's own runs, from their logs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.diagnose.own_runs import diagnose_submission, is_submission
from hpcbench.errors import UserError

STUDY = """\
study: own
site: local
model: {layers: 2, hidden: 32, heads: 2, vocab: 256}
data: {source: stdlib}
train: {steps: 6, warmup_steps: 2, global_batch: 4, micro_batch: 1, seq_len: 32, zero: 0, eval_samples: 4}
layout: {dp: 2}
matrix: {scheme: [naive-int8, baseline]}
repeats: 1
"""


def diagnose(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hpcbench", "diagnose", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_answer_rests_on_the_log_of_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "hpcbench", "submit", "s.yaml", "--wait"], cwd=tmp_path, check=True)
    (root,) = tmp_path.glob("results/own/*")
    assert is_submission(root)
    ((cell, diagnosis),) = diagnose_submission(root)
    log = root / "runs" / "r1-baseline" / "log.txt"
    assert (cell, diagnosis.paths, diagnosis.world, diagnosis.steps) == ("", (log,), 2, 4)
    lines = log.read_text(encoding="utf-8").splitlines()
    events = {event["event"]: event for event in (json.loads(line) for line in lines if line.startswith("{"))}
    (channel,) = (c for c in events["traffic"]["channels"] if (c["dimension"], c["kind"]) == ("DP", "GRAD"))
    (row,) = (row for row in diagnosis.rows if row.kind.dimension == "DP")
    assert (row.kind.operation, row.kind.dtype, row.kind.group_size) == ("all-reduce", "fp32", 2)
    assert row.wire_bytes == channel["message_bytes"] / 4 / 2, "of one rank and step"
    assert row.message_bytes == row.wire_bytes, "two ranks send the whole vector once"
    assert row.exposed == pytest.approx(channel["exposed_s"] / 4 / 2)
    free, int8 = diagnosis.gain("DP", "free communication"), diagnosis.gain("DP", "int8")
    assert free is not None and int8 is not None and 1 <= int8.factor <= free.factor
    step = diagnosis.step_seconds
    assert free.factor == pytest.approx(step / (step - row.exposed), rel=1e-6)
    done = diagnose(root, "--output", str(tmp_path / "d.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Communication is exposed for ")
    content: dict[str, Any] = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))
    assert content["from_traces"] is False and content["timeline"] == []


def test_a_submission_without_a_completed_baseline_is_one_line(tmp_path: Path) -> None:
    assert not is_submission(tmp_path)
    study = tmp_path / "s.yaml"
    study.write_text(STUDY, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "hpcbench", "submit", "--dry-run", study.name], cwd=tmp_path, check=True)
    (root,) = tmp_path.glob("results/own/dry-run/*")
    with pytest.raises(UserError, match="no run with `algorithm: native` has completed"):
        diagnose_submission(root)
    done = diagnose(root)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
