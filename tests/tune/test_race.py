"""Tests of the race: decisions on given outcomes, and searches of synthetic landscapes."""

import math
import sys
from collections.abc import Mapping
from pathlib import Path

from hpcbench.tune.belief import Belief
from hpcbench.tune.choose import Option, sum_options
from hpcbench.tune.race import NextRound, RaceRound, SchemeChoice, decide
from hpcbench.tune.standings import RaceRules, RunOutcome, Standings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

OPTIONS = {
    "DP": [Option("none", 0, 0), Option("bf16", -0.1, 1e-6), Option("int8", -0.15, 1e-4), Option("int4", -0.2, 5e-3)],
    "TP": [Option("none", 0, 0), Option("bf16", -0.1, 1e-6), Option("int8", -0.2, 4e-3), Option("int4", -0.25, 5e-2)],
}
NAMES = {
    f"{dp}-{tp}": {"DP": dp, "TP": tp}
    for dp in ("none", "bf16", "int8", "int4")
    for tp in ("none", "bf16", "int8", "int4")
}
RULES = RaceRules("none-none", 0.01)
CAST = "bf16-bf16"
SCATTER = (0.004, -0.007, 0.002, 0.006, -0.003, -0.005, 0.008, 0.001)


def _belief() -> Belief:
    return Belief(OPTIONS, {name: sum_options(OPTIONS, codecs) for name, codecs in NAMES.items()}, "none-none", 0.01)


def _race(truth: Mapping[str, tuple[float, float]], max_runs: int = 11) -> tuple[SchemeChoice, list[RaceRound]]:
    """Run a race between schemes with these true times and losses. Schemes without an entry match their predictions."""
    rounds: list[RaceRound] = []
    count = 0
    while True:
        step = decide(_belief(), [CAST], rounds, RULES, max_runs - count)
        if isinstance(step, SchemeChoice):
            return step, rounds
        outcomes = {}
        for name in step.schemes:
            predicted = sum_options(OPTIONS, NAMES[name])
            time, loss = truth.get(name, (1 + predicted.seconds, predicted.loss))
            noise = SCATTER[(count * 5 + 3) % len(SCATTER)]
            outcomes[name] = RunOutcome(time * math.exp(noise + 0.1 * len(rounds)), 2 * (1 + loss + 0.05 * noise))
            count += 1
        rounds.append(RaceRound(step.phase, outcomes))


def test_the_first_round_has_baseline_control_and_favorites() -> None:
    step = decide(_belief(), [CAST], [], RULES, 11)
    assert isinstance(step, NextRound) and step.schemes[0] == "none-none" and CAST in step.schemes
    assert "int4-int8" in step.schemes and len(step.schemes) <= 5


def test_the_best_scheme_is_confirmed_with_fresh_seeds() -> None:
    choice, rounds = _race({}, max_runs=16)
    assert choice.confirmed and choice.scheme in ("int4-int8", "int8-int8")
    assert rounds[-1].phase == "confirm" and choice.scheme in rounds[-1].outcomes
    assert sum(len(each.outcomes) for each in rounds) <= 16


def test_a_choice_without_fresh_seeds_says_so() -> None:
    choice, rounds = _race({}, max_runs=5)
    assert [each.phase for each in rounds] == ["race"] and not choice.confirmed
    assert choice.reason.startswith("probably the best, but ") and "it did not run with fresh seeds" in choice.reason


def test_a_choice_with_uncertain_fresh_seeds_says_so() -> None:
    slow = {name: (1 - 0.01 * (name == "int8-int8"), 0.0) for name in NAMES if name != "none-none"}
    choice, rounds = _race(slow, max_runs=16)
    assert rounds[-1].phase == "confirm" and not choice.confirmed
    assert "its gain with fresh seeds is inconclusive" in choice.reason


def _race_to_the_last_run(second: float) -> SchemeChoice:
    """End a race in which only `int8-int8` ran with fresh seeds. `int4-int8` takes `second` times as long."""
    rounds = []
    times = {"none-none": 1.0, "int8-int8": 0.65, "int4-int8": 0.65 * second}
    for i in range(4):
        outcomes = {
            name: RunOutcome(time * math.exp(4 * SCATTER[(3 * i + j) % len(SCATTER)]), 2 + 0.1 * SCATTER[(i + j) % 4])
            for j, (name, time) in enumerate(times.items())
            if i < 3 or name != "int4-int8"
        }
        rounds.append(RaceRound("race" if i < 3 else "confirm", outcomes))
    step = decide(_belief(), [CAST], rounds, RULES, 0)
    assert isinstance(step, SchemeChoice)
    return step


def test_a_confirmed_scheme_is_preferred_to_one_that_is_not_notably_faster() -> None:
    choice = _race_to_the_last_run(0.985)
    assert choice.confirmed and choice.scheme == "int8-int8"
    assert "int4-int8 is not notably faster" in choice.reason


def test_a_notably_faster_scheme_is_chosen_without_confirmation() -> None:
    choice = _race_to_the_last_run(0.95)
    assert not choice.confirmed and choice.scheme == "int4-int8"


def test_where_nothing_pays_one_round_is_enough() -> None:
    choice, rounds = _race({name: (1.2, 0.0) for name in NAMES if name != "none-none"})
    assert choice.scheme == "none-none" and not choice.confirmed and len(rounds) == 1


def test_a_scheme_that_breaks_the_budget_is_not_chosen() -> None:
    truth = {name: (0.5, 0.05) for name in NAMES if "int" in name}
    choice, _ = _race(truth)
    assert choice.scheme in (CAST, "none-none", "bf16-none", "none-bf16")


def test_a_scheme_that_diverges_leaves_the_race() -> None:
    truth = {name: (0.5, math.nan) for name in NAMES if "int4" in name}
    choice, rounds = _race(truth)
    assert "int4" not in choice.scheme
    assert max(sum(name in each.outcomes for each in rounds) for name in truth) <= 1


def test_the_same_rounds_give_the_same_decision() -> None:
    _, rounds = _race({}, max_runs=16)
    for end in range(len(rounds)):
        step = decide(_belief(), [CAST], rounds[:end], RULES, 16 - sum(len(each.outcomes) for each in rounds[:end]))
        assert isinstance(step, NextRound) and step.schemes == tuple(rounds[end].outcomes)


def test_a_baseline_that_fails_gives_no_round() -> None:
    rounds = [RaceRound("race", {"none-none": RunOutcome(None, None), CAST: RunOutcome(1.0, 2.0)})]
    step = decide(_belief(), [CAST], rounds, RULES, 4)
    assert isinstance(step, SchemeChoice) and step.scheme == "none-none"


def test_a_lossless_scheme_needs_no_test_of_its_loss() -> None:
    rounds = [{"none-none": RunOutcome(1.0, 2.0), "m": RunOutcome(0.9, 2.0)}] * 2
    rules = RaceRules("none-none", 0.0, lossless={"m"})
    assert Standings(["m"], rounds, rules).standings["m"].is_loss_within


def test_a_lossless_baseline_does_not_hide_the_losses_of_others() -> None:
    rounds = [{"base": RunOutcome(1.0, 2.0 + 0.01 * i), "a": RunOutcome(0.5, 2.3 + 0.01 * i)} for i in range(4)]
    rules = RaceRules("base", 0.01, lossless={"base", "m"})
    loss = Standings(["a"], rounds, rules).standings["a"].loss
    assert loss is not None and loss.estimate > 0.1


def test_searches_keep_the_budget() -> None:
    """The script benchmarks/tuner.py computes the same numbers for 1,000 landscapes."""
    from simulated.landscapes import Noise, make_landscape, search

    searches = [search(make_landscape(seed), Noise()) for seed in range(25)]
    assert max(each.runs for each in searches) <= 12
    assert sum(each.loss > 0.01 for each in searches) <= 1
    assert sum(each.excess <= 0.02 for each in searches) >= 15
