"""The race, which selects the next runs and the final scheme based on the completed rounds.

A round runs the baseline and some schemes with one seed in one allocation. Decisions depend only on the rounds, so an
interrupted search resumes with the same decisions.

1. A scheme leaves the race if it fails or diverges, if its loss is significantly over the budget, or if it is
   significantly slower than a scheme whose loss is significantly within the budget.
2. The race continues with the set of schemes that most probably contains the best scheme. It ends when one
   scheme is probably the best within the tolerance, or when the remaining runs are needed for confirmation. The race
   ends early if no scheme is faster than the baseline.
3. To confirm the best scheme, it is then compared with the baseline on fresh seeds. If the scheme leaves the race, the
   next best scheme is confirmed. If the last best scheme is not confirmed, an equally fast confirmed scheme is chosen.

Each round needs one run of the baseline, so a few large rounds measure more schemes than many small rounds. The chosen
scheme is the one that is most probably within the budget and at most slightly slower than the fastest scheme.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.tune.belief import Belief
from hpcbench.tune.standings import RaceRules, RunOutcome, Standings

Phase = Literal["race", "confirm"]
FIRST = 3
"""Number of candidate schemes in the first round."""
RIVALS = 3
"""Maximum number of schemes in later rounds of the race."""


@dataclass(frozen=True)
class RaceRound:
    """A completed round."""

    phase: Phase
    outcomes: Mapping[str, RunOutcome]


@dataclass(frozen=True)
class NextRound:
    """Schemes to run next, starting with the baseline."""

    phase: Phase
    schemes: tuple[str, ...]


@dataclass(frozen=True)
class SchemeChoice:
    """Final choice of a search."""

    scheme: str
    reason: str
    confirmed: bool
    """Whether fresh seeds show a significant gain and a loss significantly within the budget."""


def decide(
    belief: Belief, controls: Sequence[str], rounds: Sequence[RaceRound], rules: RaceRules, runs_left: int
) -> NextRound | SchemeChoice:
    """Return the next round, or the chosen scheme.

    Parameters
    ----------
    belief
        Predictions for all schemes, updated with the rounds.
    controls
        Additional schemes for the first round, such as a cast to bf16.
    rounds
        Completed rounds.
    rules
        Margins of the race.
    runs_left
        Remaining number of runs.
    """
    base = rules.baseline
    if not rounds:
        favored = belief.list_contenders(FIRST, rules.tolerance)
        schemes = list(dict.fromkeys(name for name in (*favored[:1], *controls, *favored[1:]) if name != base))
        if runs_left < 2 or not schemes:
            return SchemeChoice(base, "too few runs are allowed for a race", confirmed=False)
        return NextRound("race", (base, *schemes[: runs_left - 1]))
    standings = Standings(belief.names[1:], [each.outcomes for each in rounds], rules)
    belief.update(standings.times, standings.losses)
    measured = {base, *(name for each in rounds for name in each.outcomes)} - set(standings.out)
    if not standings.times:
        return SchemeChoice(base, f"{base} did not complete, so nothing can be compared", confirmed=False)
    if _is_futile(standings, len(rounds), rules):
        return SchemeChoice(base, f"no scheme is faster than {base}", confirmed=False)
    further = _race_on(belief, standings, measured, rules, runs_left)
    if further:
        return NextRound("race", (base, *further))
    return _confirm(belief, standings, measured, rounds, rules, runs_left)


def _is_futile(standings: Standings, rounds: int, rules: RaceRules) -> bool:
    """Return whether no measured scheme is faster than the baseline, with a tolerance after the first round."""
    gains = [
        each.gain.estimate for name, each in standings.standings.items() if each.gain and name not in standings.out
    ]
    return max(gains, default=-1.0) < (-rules.tolerance if rounds == 1 else 0.0)


def _race_on(belief: Belief, standings: Standings, measured: set[str], rules: RaceRules, runs_left: int) -> list[str]:
    """Return the schemes for another round, without the baseline. The list is empty if the race is over."""
    affordable = runs_left - 2 * rules.confirm_rounds
    if affordable < 2:
        return []
    best = belief.probability_best(rules.tolerance, standings.out)
    leader = max(best, key=lambda name: best[name])
    if leader in measured and leader != rules.baseline and best[leader] >= 1 - rules.level:
        return []
    contenders = belief.list_contenders(RIVALS + 1, rules.tolerance, standings.out)
    return [name for name in contenders if name != rules.baseline][: min(affordable - 1, RIVALS)]


def _confirm(
    belief: Belief,
    standings: Standings,
    measured: set[str],
    rounds: Sequence[RaceRound],
    rules: RaceRules,
    runs_left: int,
) -> NextRound | SchemeChoice:
    base = rules.baseline
    best = belief.probability_best(rules.tolerance, standings.out)
    leader = max((name for name in belief.names if name in measured), key=lambda name: best[name])
    if leader == base:
        return SchemeChoice(base, "no faster scheme is likely to stay within the loss budget", confirmed=False)
    fresh_rounds = [each.phase == "confirm" for each in rounds if each.outcomes[base].is_complete]
    if _is_confirmed(standings, leader, fresh_rounds, rules):
        return SchemeChoice(leader, "faster with fresh seeds, and its loss is within the budget", confirmed=True)
    if runs_left >= 2:
        return NextRound("confirm", (base, leader))
    for name in sorted(measured - {base, leader}, key=lambda name: -best[name]):
        # Confirmation rounds may change the leader between equally fast schemes.
        if belief.is_as_fast(name, leader, rules.tolerance) and _is_confirmed(standings, name, fresh_rounds, rules):
            reason = f"faster with fresh seeds, its loss is within the budget, and {leader} is not notably faster"
            return SchemeChoice(name, reason, confirmed=True)
    return SchemeChoice(leader, _explain_doubts(standings, leader, fresh_rounds, rules), confirmed=False)


def _is_confirmed(standings: Standings, scheme: str, fresh_rounds: Sequence[bool], rules: RaceRules) -> bool:
    fresh = standings.fresh_gain(scheme, fresh_rounds)
    if fresh is None or fresh.rounds < rules.confirm_rounds:
        return False
    return (fresh.sequence(rules.level).low or 0.0) > 0 and standings.standings[scheme].is_loss_within


def _explain_doubts(standings: Standings, scheme: str, fresh_rounds: Sequence[bool], rules: RaceRules) -> str:
    """Explain why a scheme is not confirmed."""
    fresh = standings.fresh_gain(scheme, fresh_rounds)
    doubts = [] if standings.standings[scheme].is_loss_within else ["its loss is inconclusive"]
    if fresh is None:
        doubts.append("it did not run with fresh seeds")
    elif (fresh.sequence(rules.level).low or 0.0) <= 0:
        doubts.append("its gain with fresh seeds is inconclusive")
    elif fresh.rounds < rules.confirm_rounds:
        doubts.append("it ran with too few fresh seeds")
    return f"probably the best, but {' and '.join(doubts)}"
