"""Standings of the schemes in a race: gains and losses relative to the baseline, with confidence sequences."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hpcbench.tune.effects import Difference, Effects


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run."""

    seconds: float | None
    """Seconds per step or per other unit of work, or None if the run failed."""
    loss: float | None
    """Loss at the end, or None if the run failed, NaN or infinite if it diverged."""

    @property
    def is_complete(self) -> bool:
        """Whether the run has a time and a finite loss."""
        return self.seconds is not None and self.seconds > 0 and self.loss is not None and math.isfinite(self.loss)


@dataclass(frozen=True)
class RaceRules:
    """Margins of a race."""

    baseline: str
    loss_budget: float
    """Maximum loss increase, as a fraction of the baseline's loss."""
    lossless: Collection[str] = field(default_factory=frozenset)
    """Schemes that change no values, so that their loss is not tested."""
    level: float = 0.05
    """Error probability of each sequence: two-sided for times, one-sided for losses."""
    tolerance: float = 0.02
    """Negligible difference in speed."""
    confirm_rounds: int = 1
    """Minimum number of rounds with fresh seeds."""


@dataclass(frozen=True)
class Standing:
    """Standing of one scheme relative to the baseline."""

    scheme: str
    gain: Difference | None
    """Logarithm of the baseline's time divided by the scheme's time, or None without a common round."""
    loss: Difference | None
    """Loss increase, as a fraction of the baseline's mean loss."""
    failed: bool
    lossless: bool
    rules: RaceRules

    @property
    def is_loss_over(self) -> bool:
        """Whether the loss is significantly over the budget."""
        if self.lossless or self.loss is None:
            return False
        return (self.loss.sequence(2 * self.rules.level).low or 0.0) > self.rules.loss_budget

    @property
    def is_loss_within(self) -> bool:
        """Whether the loss is significantly within the budget."""
        if self.lossless:
            return True
        return (
            self.loss is not None and (self.loss.sequence(2 * self.rules.level).high or 0.0) <= self.rules.loss_budget
        )


class Standings:
    """Standings after some rounds.

    Parameters
    ----------
    candidates
        Schemes without the baseline.
    rounds
        Outcomes keyed by scheme, one mapping per round.
    rules
        Margins of the race.

    Attributes
    ----------
    times, losses : list of dict
        Logarithms of times, and losses as fractions of the baseline's mean loss, for the complete runs of each round.
    standings : dict
        Standing of each scheme that has run.
    out : dict
        Reason why each scheme left the race.
    """

    def __init__(self, candidates: Sequence[str], rounds: Sequence[Mapping[str, RunOutcome]], rules: RaceRules) -> None:
        base = rules.baseline
        complete = [{name: out for name, out in each.items() if out.is_complete} for each in rounds]
        complete = [each for each in complete if base in each]
        baseline_losses = [each[base].loss or 0.0 for each in complete]
        scale = abs(math.fsum(baseline_losses) / len(baseline_losses)) if any(baseline_losses) else 1.0
        self.times = [{name: math.log(out.seconds or 1.0) for name, out in each.items()} for each in complete]
        self.losses = [
            # A lossless scheme's loss equals the baseline's and would bias the scatter estimate toward zero.
            {
                name: (out.loss or 0.0) / scale
                for name, out in each.items()
                if name == base or name not in rules.lossless
            }
            for each in complete
        ]
        self._time, self._loss = Effects(self.times, base), Effects(self.losses, base)
        failed = {name for each in rounds for name, out in each.items() if not out.is_complete} - {base}
        ran = {name for each in rounds for name in each}
        self.standings = {
            name: Standing(
                name,
                negate(self._time.difference(name)),
                self._loss.difference(name),
                name in failed,
                name in rules.lossless,
                rules,
            )
            for name in candidates
            if name in ran
        }
        self.out = self._list_out(rules)

    def _list_out(self, rules: RaceRules) -> dict[str, str]:
        out = {}
        for name, standing in self.standings.items():
            if standing.failed:
                out[name] = "a run failed or diverged"
            elif standing.is_loss_over:
                out[name] = "its loss is significantly above the budget"
        sure = [name for name, standing in self.standings.items() if name not in out and standing.is_loss_within]
        for name in self.standings:
            faster = next(
                (other for other in (rules.baseline, *sure) if other != name and self._beats(other, name)), ""
            )
            if name not in out and faster:
                out[name] = f"significantly slower than {faster}"
        return out

    def _beats(self, name: str, other: str) -> bool:
        difference = self._time.difference(name, other)
        return difference is not None and (difference.sequence(self._level).high or 0.0) < 0

    @property
    def _level(self) -> float:
        return next(iter(self.standings.values())).rules.level

    def fresh_gain(self, scheme: str, fresh: Sequence[bool]) -> Difference | None:
        """Return a scheme's gain in fresh-seed rounds, with the scatter of all rounds, or None without such rounds.

        Parameters
        ----------
        scheme
            The scheme.
        fresh
            For each round with a complete baseline, whether its seed was fresh when the scheme was chosen.
        """
        base = next(iter(self.standings.values())).rules.baseline
        pairs = [
            each[base] - each[scheme]
            for each, is_fresh in zip(self.times, fresh, strict=True)
            if is_fresh and scheme in each
        ]
        if not pairs:
            return None
        mean = math.fsum(pairs) / len(pairs)
        return Difference(mean, 2 / len(pairs), self._time.variance, self._time.freedom, len(pairs))


def negate(difference: Difference | None) -> Difference | None:
    """Return the negated difference."""
    if difference is None:
        return None
    return Difference(
        -difference.estimate, difference.factor, difference.variance, difference.freedom, difference.rounds
    )
