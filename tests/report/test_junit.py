"""Tests of JUnit XML: the result for each run state, and for thresholds."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from planted_results import Planted, write, write_marker

from hpcbench.contract.criteria import QuantityBound
from hpcbench.contract.state import JobSummary
from hpcbench.report.main import report
from hpcbench.report.sections import read
from hpcbench.report.thresholds import check_thresholds, decide_mean

RUNS = [
    Planted("baseline", 1, 0.4, 2.70),
    Planted("baseline", 2, 0.4, 2.71),
    Planted("mzhybrid", 1, 0.3, 2.70, 0.5),
    Planted("mzhybrid", 2, 0.5, 2.90, 0.5),
]


def submission(tmp_path: Path, thresholds: list[dict[str, Any]], runs: list[Planted] = RUNS) -> Path:
    root = write(tmp_path / "001", runs)
    plan = json.loads((root / "submission.json").read_text())
    (root / "submission.json").write_text(json.dumps({**plan, "thresholds": thresholds}))
    return root


def cases(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, ElementTree.Element | None]]:
    """Return the exit status, and the element of each run that did not pass."""
    status = report([root], "junit")
    suite = ElementTree.fromstring(capsys.readouterr().out).find("testsuite")
    assert suite is not None
    values_by_name = {case.get("name", ""): (list(case) or [None])[0] for case in suite.findall("testcase")}
    assert int(suite.get("tests", "")) == len(values_by_name)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        number = sum(element is not None and element.tag == tag for element in values_by_name.values())
        assert int(suite.get(attribute, "")) == number, attribute
    return status, values_by_name


def test_without_thresholds_completed_runs_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = cases(submission(tmp_path, []), capsys)
    assert status == 0 and result == dict.fromkeys(run.id for run in RUNS)


@pytest.mark.parametrize(
    ("threshold", "broken", "expected_text"),
    [
        ({"quantity": "loss", "max": 2.8}, ["r2-mzhybrid"], "loss is 2.9; the threshold is at most 2.8"),
        ({"quantity": "samples_per_s", "min": 19, "scheme": "mzhybrid"}, ["r2-mzhybrid"], "is 16; the threshold is"),
        ({"quantity": "speed_ratio", "min": 1.0}, ["r2-mzhybrid"], "speed_ratio is 0.8; the threshold is at least 1"),
        ({"quantity": "loss_difference", "max": 0.1}, ["r2-mzhybrid"], "loss_difference is 0.19"),
        ({"quantity": "wire_over_message", "max": 0.6}, ["r1-baseline", "r2-baseline"], "is 1; the threshold is"),
        ({"quantity": "step_seconds", "min": 0.35, "max": 0.45}, ["r1-mzhybrid", "r2-mzhybrid"], "step_seconds is"),
        ({"quantity": "tflops", "min": 1e-9}, [], ""),
    ],
)
def test_a_threshold_that_is_broken_fails_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], threshold: dict[str, Any], broken: list[str], expected_text: str
) -> None:
    root = submission(tmp_path, [threshold])
    status, result = cases(root, capsys)
    failed = {name: element for name, element in result.items() if element is not None}
    assert (sorted(failed), status) == (broken, int(bool(broken)))
    for element in failed.values():
        assert element.tag == "failure" and element.get("type") == "threshold"
    assert not broken or expected_text in (failed[broken[-1]].get("message") or "")
    assert report([root]) == status, "the table ends as the XML does"
    assert expected_text in capsys.readouterr().out


def test_what_is_broken_and_the_log_stand_on_lines_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = submission(tmp_path, [{"quantity": "loss", "max": 2.8}, {"quantity": "mfu", "min": 0.3}])
    element = cases(root, capsys)[1]["r2-mzhybrid"]
    assert element is not None and element.text is not None
    assert element.text.splitlines() == [
        "loss is 2.9; the threshold is at most 2.8",
        "mfu is not known; the threshold is at least 0.3",
        str(root / "runs" / "r2-mzhybrid" / "log.txt"),
    ]


def test_what_cannot_be_judged_is_an_error_and_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = cases(submission(tmp_path, [{"quantity": "mfu", "min": 0.0}]), capsys)
    assert status == 1
    assert {element.tag for element in result.values() if element is not None} == {"error"}
    assert "mfu is not known" in str(next(element.get("message") for element in result.values() if element is not None))


def test_states_that_are_no_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = submission(tmp_path, [{"quantity": "loss", "max": 9.9}])
    failed, waiting, unknown = (root / "runs" / name for name in ("r1-mzhybrid", "r2-mzhybrid", "r2-baseline"))
    (failed / "log.txt").write_text("")
    (failed / "err.txt").write_text("ValueError: <no> & \x00 \x1b[31m]]>\n")
    write_marker(failed, "j0001-r1", 1)
    for file in ("log.txt", "status.json"):
        (waiting / file).unlink()
    (unknown / "log.txt").unlink()
    jobs = {"j0001-r1": JobSummary("j0001-r1", "failed", 1), "j0002-r2": JobSummary("j0002-r2", "running")}
    monkeypatch.setattr("hpcbench.report.sections.jobs_of", lambda root: jobs)
    status, result = cases(root, capsys)
    assert status == 1
    tags = {name: None if element is None else element.tag for name, element in result.items()}
    assert tags == {"r1-baseline": None, "r1-mzhybrid": "error", "r2-baseline": "error", "r2-mzhybrid": "skipped"}
    element = result["r1-mzhybrid"]
    assert element is not None and "<no> &" in (element.get("message") or "") and element.get("type") == "failed"


def test_what_is_broken_goes_before_what_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = submission(tmp_path, [{"quantity": "mfu", "min": 0.1}, {"quantity": "loss", "max": 2.8}])
    _, result = cases(root, capsys)
    tags = {name: element.tag for name, element in result.items() if element is not None}
    assert tags == {**dict.fromkeys((run.id for run in RUNS), "error"), "r2-mzhybrid": "failure"}


def spread(speeds: dict[str, list[float]]) -> list[Planted]:
    """Return runs with the given samples/s (a step has 8 samples)."""
    return [
        Planted(scheme, repeat, 8 / speed, 2.7)
        for scheme, values in speeds.items()
        for repeat, speed in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("speeds", "threshold", "state"),
    [
        # 95 % of 20 is 19. One-sided t tests on logarithms; the bounds were computed with SciPy.
        ([20.0, 20.2, 19.8], {"reference": 20, "min": 0.95}, "met"),
        ([20.0, 21.5, 18.5], {"reference": 20, "min": 0.95}, "inconclusive"),
        ([17.0, 17.2, 16.8], {"reference": 20, "min": 0.95}, "violated"),
        ([20.0], {"reference": 20, "min": 0.95}, "inconclusive"),
        ([20.0, 20.0], {"min": 20.0, "max": 20.0}, "met"),
        ([20.0, 20.2, 19.8], {"min": 19, "max": 21}, "met"),
        ([20.0, 20.2, 19.8], {"min": 19, "max": 20.1}, "inconclusive"),
        ([20.0, 20.2, 19.8], {"max": 19.5}, "violated"),
    ],
)
def test_a_threshold_with_a_confidence_has_three_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], speeds: list[float], threshold: dict[str, Any], state: str
) -> None:
    root = submission(
        tmp_path, [{"quantity": "samples_per_s", "confidence": 0.95, **threshold}], spread({"baseline": speeds})
    )
    (_, cells) = read([root]).sections[0]
    (result,) = check_thresholds(cells, [QuantityBound(quantity="samples_per_s", confidence=0.95, **threshold)])
    assert (result.state, len(result.runs)) == (state, len(speeds))
    status, elements = cases(root, capsys)
    element = elements.pop("baseline: samples_per_s")
    assert set(elements.values()) == {None} and status == int(state != "met")
    assert (element is not None and element.tag) == {"met": False, "violated": "failure"}.get(state, "error")
    assert report([root]) == status
    out = " ".join(capsys.readouterr().out.split())
    assert f"Thresholds with a confidence: 1 {state}." in out
    assert (f"at 95 %: {state}" in out) == (state != "met")


def test_the_bounds_of_a_mean_are_those_of_scipy(tmp_path: Path) -> None:
    from scipy import stats

    values = [20.0, 21.5, 18.5, 20.4]
    root = submission(tmp_path, [], spread({"baseline": values}))
    (_, cells) = read([root]).sections[0]
    (result,) = check_thresholds(cells, [QuantityBound(quantity="samples_per_s", min=1, confidence=0.9)])
    logs = [math.log(value) for value in values]
    low, high = stats.t.interval(0.8, 3, sum(logs) / 4, stats.sem(logs))
    assert result.interval is not None
    assert (result.interval.low, result.interval.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-4)


def test_a_machine_at_the_bound_is_accepted_in_at_most_5_percent(tmp_path: Path) -> None:
    """If the true mean is at the bound, neither state may be reported more often than the confidence allows."""
    rng, threshold = random.Random(7), QuantityBound(quantity="loss", min=1.0, confidence=0.95)
    states = Counter(decide_mean((), threshold, [rng.gauss(1, 0.05) for _ in range(4)]).state for _ in range(2000))
    assert 0.03 < states["met"] / 2000 < 0.07 and 0.03 < states["violated"] / 2000 < 0.07


def test_a_comparison_with_the_baseline_needs_pairs(tmp_path: Path) -> None:
    runs = spread({"baseline": [20.0, 10.0, 15.0], "mzhybrid": [30.0, 15.1, 22.4]})
    root = submission(tmp_path, [], runs)
    (_, cells) = read([root]).sections[0]
    bound = QuantityBound(quantity="speed_ratio", min=1.4, confidence=0.95, scheme="mzhybrid")
    (result,) = check_thresholds(cells, [bound])
    assert result.state == "met", "pairs scatter by 1 %, the speeds themselves by 30 %"
