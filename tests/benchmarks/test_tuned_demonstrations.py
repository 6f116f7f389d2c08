"""Tests of the comparison between the tuner's choice and a complete table."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from printed import Printed
from scipy import stats
from stored_results import ROOT

from hpcbench.tune.standings import RunOutcome

sys.path.insert(0, str(ROOT / "benchmarks"))
from tuned_demonstrations import CASES, compare, list_schemes, write_site

TIMES = {"baseline": 1.0, "dp-bf16": 0.8, "dp-int8": 0.7, "dp-int4": 0.6, "naive-bf16": 0.9}
LOSSES = {"baseline": 2.0, "dp-bf16": 2.0, "dp-int8": 2.01, "dp-int4": 2.2, "naive-bf16": 2.005}


def _tuned(choice: str | None) -> dict[str, Any]:
    candidates = [
        {"scheme": name, "seconds": TIMES[name] - 1, "codecs": {"algorithm": "encoded", "DP": name.split("-")[1]}}
        for name in TIMES
        if name != "baseline"
    ]
    outcome = None if choice is None else {"scheme": choice, "confirmed": True}
    return {"choice": outcome, "runs": 12, "candidates": candidates}


def _rounds() -> list[dict[str, RunOutcome]]:
    shifts = (0.0, 0.001, -0.001)
    return [
        {name: RunOutcome(TIMES[name] * math.exp(shift * len(name)), LOSSES[name] * (1 + shift)) for name in TIMES}
        for shift in shifts
    ]


def test_the_best_scheme_within_the_budget_has_no_excess() -> None:
    result = compare(_tuned("dp-int8"), _rounds())
    assert result["best"] == "dp-int8" and result["on_front"] and result["excess"]["estimate"] == pytest.approx(0)
    assert result["table_runs"] == 15 and result["runs"] == 12


def test_a_slower_choice_has_an_excess() -> None:
    result = compare(_tuned("naive-bf16"), _rounds())
    excess = result["excess"]
    assert excess["estimate"] == pytest.approx(0.9 / 0.7 - 1) and not result["on_front"]
    # The names differ by three letters, so the logarithms of the ratio have a standard deviation of 0.003.
    width = stats.t.ppf(0.975, 2) * 0.003 / math.sqrt(3)
    assert math.log((1 + excess["high"]) / (1 + excess["low"])) == pytest.approx(2 * width)


def test_a_search_that_ends_without_runs_chooses_the_baseline() -> None:
    result = compare(_tuned(None), _rounds())
    assert result["choice"] == "baseline" and not result["confirmed"]
    assert result["excess"]["estimate"] == pytest.approx(1 / 0.7 - 1)


def test_a_choice_that_the_table_lacks_has_no_excess() -> None:
    rounds = [{name: each for name, each in outcomes.items() if name != "dp-int8"} for outcomes in _rounds()]
    assert compare(_tuned("dp-int8"), rounds)["excess"] is None


def test_the_table_has_the_fastest_candidates_the_controls_and_the_choice() -> None:
    schemes = list_schemes(_tuned("dp-bf16"), most=1)
    assert set(schemes) == {"dp-int4", "naive-bf16", "dp-bf16"}
    assert schemes["naive-bf16"] is None and '"int4:32"' in str(schemes["dp-int4"])


def test_sites_have_the_rate_of_their_case(tmp_path: Path) -> None:
    assert write_site(CASES["shared"], tmp_path) == "local"
    text = Path(write_site(CASES["faster"], tmp_path)).read_text(encoding="utf-8")
    assert "args: [--rate, 1gbit]" in text and "bandwidth_gbit: 1}" in text


def test_the_plan_runs_nothing(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    text = "\n".join(tiny("tuned_demonstrations.py", "--work", str(tmp_path)).lines)
    assert "program" in text and "25" in text
    assert not (tmp_path / "program" / "search").exists()
