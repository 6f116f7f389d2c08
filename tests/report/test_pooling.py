"""Tests that submissions of one study form one comparison, and that others are named by their directories."""

import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from planted_results import Planted, write

from hpcbench.collect.submission import Submission
from hpcbench.report.answer import answer
from hpcbench.report.build import build
from hpcbench.report.main import report
from hpcbench.report.pooling import split_pooled
from hpcbench.report.sections import read

T_4 = 2.7764451051977987
"""The 97.5 % quantile of Student's t with 4 degrees of freedom (SciPy)."""


def submitted(root: Path, ratios: tuple[float, ...] = (2.0,), loss: float = 2.7, **plan: Any) -> Path:
    """Write a submission with a pair of runs for each ratio. `plan` overrides fields of the submission's plan."""
    runs = [
        Planted(scheme, k, seconds, loss)
        for k, ratio in enumerate(ratios, 1)
        for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.4 / ratio))
    ]
    path = write(root, runs) / "submission.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "ab", **plan}))
    return root


def submissions(*roots: Path) -> list[Submission]:
    return [submission for submission, _ in read(list(roots)).sections]


def test_five_submissions_have_the_interval_of_their_five_pairs(tmp_path: Path) -> None:
    ratios = (2.90, 2.15, 1.78, 2.29, 1.16)
    roots = [submitted(tmp_path / f"{k:03d}", (ratio,)) for k, ratio in enumerate(ratios, 1)]
    ((_, (cell,)),) = read(roots).sections
    row = cell.row("naive-zfp8")
    assert row is not None and row.speed is not None
    logs = [math.log(ratio) for ratio in ratios]
    half = T_4 * stdev(logs) / math.sqrt(5)
    assert row.speed.pairs == 5
    result = (row.speed.estimate, row.speed.low, row.speed.high)
    assert result == pytest.approx([math.exp(fmean(logs) + sign * half) for sign in (0, -1, 1)], rel=1e-6)
    answer_lines = answer(cell, "local")
    assert (
        "Runs of 5 submissions of the same study, site and software are pooled: 001, 002, 003, 004, 005. Losses"
        " with the same seed count once, as their mean."
    ) in answer_lines


def test_losses_of_one_seed_are_one_value_and_those_of_further_seeds_are_others(tmp_path: Path) -> None:
    """Both submissions use seeds 1 and 2. The second submission also uses seed 3."""
    roots = [submitted(tmp_path / "001", (2.0, 2.1)), submitted(tmp_path / "002", (2.0, 2.1, 2.2))]
    ((_, (cell,)),) = read(roots).sections
    row = cell.row("naive-zfp8")
    assert row is not None and row.speed is not None and row.loss is not None
    assert (row.speed.pairs, row.loss.pairs) == (5, 3)


def test_runs_of_two_submissions_make_no_pair(tmp_path: Path) -> None:
    """One submission contains only the baseline, and the other only the scheme."""
    roots = [submitted(tmp_path / "001"), submitted(tmp_path / "002")]
    for root, scheme in zip(roots, ("baseline", "naive-zfp8"), strict=True):
        for path in (root / "runs" / f"r1-{scheme}").iterdir():
            path.unlink()
    ((_, (cell,)),) = read(roots).sections
    row = cell.row("naive-zfp8")
    assert row is not None and row.speed is None


@pytest.mark.parametrize(
    "plan", [{"digest": "cd"}, {"site": "lassen"}, {"version": "0.2.0"}, {"digest": ""}, {"dry_run": True}]
)
def test_what_differs_stays_apart(tmp_path: Path, plan: dict[str, Any]) -> None:
    pooled = submissions(submitted(tmp_path / "001"), submitted(tmp_path / "002", **plan))
    assert len(pooled) == 2 and not any(item.parts for item in pooled)


def test_submissions_without_a_digest_are_not_the_same_study(tmp_path: Path) -> None:
    pooled = submissions(submitted(tmp_path / "001", digest=""), submitted(tmp_path / "002", digest=""))
    assert len(pooled) == 2


def test_other_software_stays_apart_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = submitted(tmp_path / "001"), submitted(tmp_path / "002")
    for path in second.glob("runs/*/log.txt"):
        path.write_text(path.read_text().replace("MPICH 5.0.2", "MPICH 4.3.2"))
    assert len(submissions(first, second)) == 2
    assert f"{second} and {first}: not pooled, because the runs differ in mpi" in capsys.readouterr().err


def test_a_scheme_that_one_submission_lacks_is_no_other_software(tmp_path: Path) -> None:
    first, second = submitted(tmp_path / "001"), submitted(tmp_path / "002")
    (second / "runs" / "r1-naive-zfp8" / "log.txt").unlink()
    assert len(submissions(first, second)) == 1


def test_chapters_of_submissions_that_stay_apart_have_their_names(tmp_path: Path) -> None:
    roots = [submitted(tmp_path / "first" / "001"), submitted(tmp_path / "second" / "001", digest="cd")]
    titles = [chapter.title.partition(":")[0] for chapter in build(read(roots).sections).chapters]
    assert titles == ["demo on local (first/001)", "demo on local (second/001)"]
    alone = build(read(roots[:1]).sections).chapters
    assert [chapter.title.partition(":")[0] for chapter in alone] == ["demo on local"]


def test_files_of_pooled_submissions_are_all_packed_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = [submitted(tmp_path / "001"), submitted(tmp_path / "002")]
    (pooled,) = submissions(*roots)
    assert [part.root for part in split_pooled([pooled])] == roots
    assert len({run.id for run in pooled.runs}) == len(pooled.runs) == 4
    rows = tmp_path / "rows.jsonl"
    assert report(roots, "json", exports=[rows]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["submissions"]) == 1
    assert {str(root) in rows.read_text() for root in roots} == {True}
