"""Search over rounds until a scheme is chosen, within limits on runs and node-hours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.tune.belief import Belief, Uncertainty
from hpcbench.tune.prune import SearchPlan
from hpcbench.tune.race import SchemeChoice, decide
from hpcbench.tune.rounds import RoundResult
from hpcbench.tune.standings import RaceRules
from hpcbench.tune.state import RoundRecord, SearchState

PROGRAM_UNCERTAINTY = Uncertainty(time=1.5, loss=2.0)
"""Prior uncertainty if there are no predictions."""


@dataclass(frozen=True)
class SearchLimits:
    """Limits on the cost of a search."""

    runs: int
    node_hours: float = math.inf

    def count_runs_left(self, state: SearchState) -> int:
        """Return the number of runs that may still start, assuming the average cost of previous runs."""
        left = self.runs - state.runs
        if state.runs and state.node_hours and math.isfinite(self.node_hours):
            left = min(left, int((self.node_hours - state.node_hours) / (state.node_hours / state.runs)))
        return max(0, left)


def make_belief(plan: SearchPlan, rules: RaceRules) -> Belief:
    """Return the prior belief."""
    uncertainty = None if plan.best_gain is not None else PROGRAM_UNCERTAINTY
    return Belief(plan.options, plan.combinations, rules.baseline, rules.loss_budget, uncertainty)


def find_next(
    plan: SearchPlan, rules: RaceRules, limits: SearchLimits, state: SearchState
) -> RoundRecord | SchemeChoice:
    """Return the round to continue or to run next, or the choice."""
    if not plan.can_pay:
        gain = 100 * (plan.best_gain or 0.0)
        return SchemeChoice(
            rules.baseline, f"nothing can pay here: the predicted gain is at most {gain:.1f} %", confirmed=False
        )
    if state.rounds and state.rounds[-1].outcomes is None:
        return state.rounds[-1]
    step = decide(make_belief(plan, rules), plan.controls, state.completed, rules, limits.count_runs_left(state))
    return step if isinstance(step, SchemeChoice) else RoundRecord(step.phase, list(step.schemes))


def search(
    plan: SearchPlan,
    rules: RaceRules,
    limits: SearchLimits,
    state: SearchState,
    directory: Path,
    run: Callable[[int, Sequence[str]], RoundResult | None],
    say: Callable[[str], None] = lambda line: None,
) -> SchemeChoice | None:
    """Search until a scheme is chosen. Return None if a round is incomplete.

    Parameters
    ----------
    plan, rules, limits
        Candidates, margins and limits.
    state
        State of the search, saved to `directory` after each step.
    directory
        Directory of the search.
    run
        Function ``run(number, schemes)`` that runs or continues round `number`, counted from 1.
    say
        Callback that receives a line about each round.
    """
    while True:
        record = find_next(plan, rules, limits, state)
        if isinstance(record, SchemeChoice):
            return record
        if record not in state.rounds:
            state.rounds.append(record)
            state.save(directory)
        number = len(state.rounds)
        say(f"round {number} ({record.phase}): {', '.join(record.schemes)}")
        result = run(number, record.schemes)
        if result is None:
            return None
        record.outcomes, record.node_hours = dict(result.outcomes), result.node_hours
        state.save(directory)
