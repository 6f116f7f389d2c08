"""Tests that trace a number of a report to its line in the log, and to the provenance of the measurement."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write
from tools import explain_missing

from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import load
from hpcbench.report.main import report
from hpcbench.report.provenance import Fact, gather_provenance

STUDY = """\
study: traced
model: {name: mini, layers: 1, hidden: 32, heads: 2, vocab: 256}
train: {steps: 4, warmup_steps: 1, global_batch: 2, seq_len: 32}
layout: {dp: 2}
matrix: {scheme: [baseline]}
repeats: 1
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str | None], None]) -> Path:
    """Run the submission of a study in a git checkout with an uncommitted change."""
    need(explain_missing("git"))
    folder = tmp_path_factory.mktemp("traced")
    study = folder / "study.yaml"
    study.write_text("# of before\n")
    git = ["git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for command in (["init", "-q"], ["add", "study.yaml"], ["commit", "-q", "-m", "a study"]):
        subprocess.run([*git, *command], check=True)
    study.write_text(STUDY)
    subprocess.run(
        [sys.executable, "-m", "hpcbench", "submit", "study.yaml", "--site", "local", "--out", "out", "--wait"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=300,
    )
    return folder / "out" / "001"


def figures(root: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the report's only run as JSON."""
    report([root], "json")
    [submission] = json.loads(capsys.readouterr().out)["submissions"]
    [cell] = submission["cells"]
    [run] = cell["runs"]
    result: dict[str, Any] = run
    return result


def source(root: Path, **wanted: Any) -> str:
    """Return the log line to which a row of the export refers."""
    path = root.parent / "records.jsonl"
    report([root], "csv", root.parent / "report.csv", exports=[path])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    [row] = [row for row in rows if wanted.items() <= row.items()]
    return Path(row["file"]).read_text().splitlines()[row["line"] - 1]


def test_a_planted_loss_is_followed_to_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.2, 2.7182818)])
    run = figures(root, capsys)
    assert run["loss_valid"] == 2.7182818
    line = json.loads(source(root, run=run["run"], event="evaluation", loss=run["loss_valid"]))
    assert line["event"] == "evaluation" and line["loss"] == 2.7182818
    assert "loss 2.7182" in source(root, run=run["run"], step=run["steps"], event="step")


def test_a_measured_figure_is_followed_to_all_that_made_it(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = figures(measured, capsys)
    assert run["state"] == "completed" and run["loss_valid"] > 0
    line = json.loads(source(measured, run=run["run"], event="evaluation", loss=run["loss_valid"]))
    assert line["event"] == "evaluation" and line["loss"] == run["loss_valid"]

    origin = gather_provenance(load(measured, jobs_of(measured)))
    # the package's version of torch lacks the suffix of torch.__version__, for example +cpu
    groups = [group for group in origin.groups if not group.title.startswith("Packages")]
    facts: dict[str, Fact] = {fact.name: fact for group in groups for fact in group.facts}
    job = facts[run["job"]]
    assert f"id {json.loads(Path(str(job.source)).read_text())['id']}," in job.value and "exit 0" in job.value
    script = Path(str(facts[f"{run['job']}: job"].source)).read_text()
    assert f"run {run['run']} " in script and f"root={measured}" in script
    environment = Path(str(facts[f"{run['job']}: environment"].source)).read_text()
    assert "OMP_NUM_THREADS=1" in environment
    assert "study: traced" in Path(str(facts["study"].source)).read_text()
    assert json.loads(Path(str(facts["site"].source)).read_text())["site"] == "local"

    head = ["git", "-C", str(measured), "rev-parse", "HEAD"]
    revision = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    assert facts["revision of study"].value == f"{revision}, with changes"
    [note] = [note for note in origin.notes if "checkout of study" in note]
    assert f"{measured}/provenance/study.diff" in note
    assert "+study: traced" in (measured / "provenance/study.diff").read_text()

    for name in ("mpi", "python", "torch", "numpy", "kernels", "local rank 0", "local rank 1"):
        path, _, number = str(facts[name].source).rpartition(":")
        document = json.loads(Path(path).read_text().splitlines()[int(number) - 1])
        assert document["event"] == "environment"
        if name in document:
            assert facts[name].value == document[name]
