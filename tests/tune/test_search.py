"""Tests of the search: limits, state on disk, and resuming after any interruption."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.tune.choose import Option, sum_options
from hpcbench.tune.command import parse_budget
from hpcbench.tune.prune import SearchPlan
from hpcbench.tune.race import SchemeChoice
from hpcbench.tune.results import Tuned, list_front
from hpcbench.tune.rounds import RoundResult, list_sets
from hpcbench.tune.search import SearchLimits, search
from hpcbench.tune.standings import RaceRules, RunOutcome
from hpcbench.tune.state import NAME, SearchState, load_state

OPTIONS = {"DP": [Option("none", 0.0, 0.0), Option("bf16", -0.1, 1e-6), Option("int8", -0.2, 2e-3)]}
COMBINATIONS = {name: sum_options(OPTIONS, {"DP": name}) for name in ("bf16", "int8")}
RULES = RaceRules("base", 0.01)


def _plan(gain: float = 0.25) -> SearchPlan:
    return SearchPlan(OPTIONS, COMBINATIONS, (), ["bf16"], frozenset(), gain, ())


class _Site:
    """A site that counts submissions, and interrupts the command at given calls of `run`."""

    def __init__(self, stops: Sequence[int] = ()) -> None:
        self.submitted: list[int] = []
        self._stops = list(stops)
        self._calls = 0

    def run(self, number: int, schemes: Sequence[str]) -> RoundResult:
        self._calls += 1
        if number not in self.submitted:
            self.submitted.append(number)
        if self._calls in self._stops:
            raise KeyboardInterrupt
        times = {"base": 1.0, "bf16": 0.9, "int8": 0.81}
        shift = {"base": 0.0, "bf16": 0.002 * (number % 3), "int8": -0.003 * (number % 2)}
        outcomes = {
            name: RunOutcome(times[name] * (1 + shift[name]), 2.0 + 0.01 * number + shift[name] / 9) for name in schemes
        }
        return RoundResult(outcomes, 0.5 * len(schemes))


def _search(
    directory: Path, site: _Site, limits: SearchLimits | None = None
) -> tuple[SchemeChoice | None, SearchState]:
    state = load_state(directory, "d")
    return search(_plan(), RULES, limits or SearchLimits(12), state, directory, site.run), state


@pytest.mark.parametrize("stops", [(1,), (2,), (1, 2, 3), (3, 4)])
def test_an_interrupted_search_continues_with_the_same_rounds(tmp_path: Path, stops: Sequence[int]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    through = _Site()
    choice, state = _search(tmp_path / "a", through)
    site = _Site(stops)
    again = None
    for _ in range(len(stops) + 1):
        try:
            again, continued = _search(tmp_path / "b", site)
        except KeyboardInterrupt:
            continue
        break
    assert again == choice and continued.rounds == state.rounds
    assert site.submitted == through.submitted
    assert choice is not None and choice.scheme == "int8" and choice.confirmed


def test_a_crash_before_the_submission_repeats_the_planned_round(tmp_path: Path) -> None:
    """The file contains the round before anything is submitted, so a second command runs the same round."""
    with pytest.raises(KeyboardInterrupt):
        _search(tmp_path, _Site([1]))
    content = json.loads((tmp_path / NAME).read_text())
    assert [each["outcomes"] for each in content["rounds"]] == [None]
    assert load_state(tmp_path, "d").runs == len(content["rounds"][0]["schemes"])


@pytest.mark.parametrize(
    "limits", [SearchLimits(3), SearchLimits(5), SearchLimits(12), SearchLimits(100, node_hours=3.0)]
)
def test_limits_are_kept(tmp_path: Path, limits: SearchLimits) -> None:
    _, state = _search(tmp_path, _Site(), limits)
    assert state.runs <= limits.runs and state.node_hours <= limits.node_hours


def test_nothing_runs_where_nothing_can_pay(tmp_path: Path) -> None:
    state = SearchState("d")
    choice = search(_plan(0.015), RULES, SearchLimits(12), state, tmp_path, _Site().run)
    assert choice is not None and choice.scheme == "base" and "at most 1.5 %" in choice.reason
    assert state.runs == 0 and not (tmp_path / NAME).exists()


def test_a_round_that_is_not_over_ends_the_command(tmp_path: Path) -> None:
    state = SearchState("d")
    assert search(_plan(), RULES, SearchLimits(12), state, tmp_path, lambda number, schemes: None) is None
    assert load_state(tmp_path, "d").rounds[0].outcomes is None


def test_the_state_of_another_search_is_refused(tmp_path: Path) -> None:
    SearchState("other").save(tmp_path)
    with pytest.raises(UserError, match="belongs to a search with another study"):
        load_state(tmp_path, "d")
    (tmp_path / NAME).write_text('{"schema": 1, "rounds": [{}]}')
    with pytest.raises(UserError, match="is damaged"):
        load_state(tmp_path, "d")


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.5 %", 0.005), ("0.02", 0.02), ("0", 0.0)])
def test_budgets_are_read(text: str, value: float) -> None:
    assert parse_budget(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "-1%", "200%", "one", "1..2%", "nan"])
def test_wrong_budgets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--loss-budget"):
        parse_budget(text)


def test_the_results_are_complete(tmp_path: Path) -> None:
    choice, state = _search(tmp_path, _Site())
    tuned = Tuned("s", "local", _plan(), RULES, state, SearchLimits(12), choice, {})
    content = tuned.content()
    assert content["choice"]["scheme"] == "int8" and content["runs"] == state.runs
    assert {each["scheme"] for each in content["standings"]} == {"bf16", "int8"}
    standings = tuned.standings
    assert standings is not None and set(list_front(standings)) <= {"base", "bf16", "int8"}
    text = tuned.write("md")
    assert "Choice: int8 (confirmed)" in text and "Pareto" in text


def test_sets_of_a_round() -> None:
    sets = list_sets(["base", "x"], {}, seed_key="train.seed", seed=7, sets=["nodes=2"])
    assert sets == ["nodes=2", 'matrix.scheme=["base", "x"]', "repeats=1", "train.seed=7"]
