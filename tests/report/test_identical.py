"""Tests that identical schemes are detected by their rules and traffic, and named in the report."""

import json
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write
from report_tables import cell

from hpcbench.present.document import Sentences
from hpcbench.report.build import build
from hpcbench.report.identical import find_identical
from hpcbench.report.main import report
from hpcbench.report.sections import read

DP8 = {"dimension": "DP", "codec": "zfp:8"}
SCHEMES: dict[str, dict[str, Any]] = {
    "baseline": {"algorithm": "native"},
    "one": {"default": "mpc", "rules": [DP8]},
    "two": {"default": "zfp:16", "rules": [DP8]},
}


def planted(root: Path, schemes: dict[str, dict[str, Any]]) -> Path:
    """Return a study of these schemes whose only traffic is data-parallel gradients."""
    write(root, [Planted(name, k, 0.2 + k / 100, 2.7) for k in (1, 2) for name in schemes], steps=20)
    plain = {"algorithm": "encoded", "default": "none", "rules": [], "environment": {}, "optimizer": None}
    for run in root.glob("runs/*"):
        name = run.name.partition("-")[2]
        for path in (run / "run.json", run / "log.txt"):
            lines = path.read_text().splitlines()
            for k, line in enumerate(lines):
                if '"scheme": {' in line:
                    event = json.loads(line)
                    owner = event["run"] if isinstance(event["run"], dict) else event
                    owner["scheme"] = {**plain, **schemes[name], "name": name}
                    lines[k] = json.dumps(event)
            path.write_text("\n".join(lines) + "\n")
    return root


def test_rules_for_traffic_that_no_run_has_make_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = planted(tmp_path, SCHEMES)
    assert find_identical(cell(root)) == [["one", "two"]]
    (chapter,) = build(read([root]).sections).chapters
    lines = [line for block in chapter.blocks if isinstance(block, Sentences) for line in block.lines]
    (sentence,) = [line for line in lines if "identical" in line]
    assert sentence.startswith("one, two are identical in these runs, because they treat all traffic in the same way")
    report([root], "json")
    assert json.loads(capsys.readouterr().out)["submissions"][0]["cells"][0]["identical"] == [["one", "two"]]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "ring"},
        {"environment": {"MPICH_COMPRESS": "1"}, "algorithm": "native", "default": "none", "rules": []},
        {"optimizer": "onebit-adam"},
        {"rules": [{**DP8, "codec": "zfp:16"}]},
        {"rules": [{**DP8, "min_bytes": 4096}]},
        {"rules": [{**DP8, "feedback": True}]},
        {"rules": [{**DP8, "between_nodes": True}]},
        {"rules": [{**DP8, "codec": "an unknown codec"}]},
    ],
    ids=str,
)
def test_whatever_changes_the_traffic_makes_another_experiment(tmp_path: Path, change: dict[str, Any]) -> None:
    assert find_identical(cell(planted(tmp_path, {**SCHEMES, "two": {**SCHEMES["two"], **change}}))) == []


def test_schemes_with_other_losses_are_not_called_identical(tmp_path: Path) -> None:
    root = planted(tmp_path, SCHEMES)
    for log in root.glob("runs/*two/log.txt"):
        log.write_text(log.read_text().replace('"split": "valid", "loss": 2.7', '"split": "valid", "loss": 2.8'))
    assert find_identical(cell(root)) == []


def test_an_optimizer_that_is_that_of_the_study_is_no_difference(tmp_path: Path) -> None:
    root = planted(tmp_path, {**SCHEMES, "two": {**SCHEMES["two"], "optimizer": "adamw"}})
    assert find_identical(cell(root)) == []
    for path in (*root.glob("runs/*/run.json"), *root.glob("runs/*/log.txt")):
        path.write_text(path.read_text().replace('"train": {', '"train": {"optimizer": "adamw", '))
    assert find_identical(cell(root)) == [["one", "two"]]
