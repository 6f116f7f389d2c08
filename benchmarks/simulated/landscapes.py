"""Synthetic landscapes for the tuner: schemes with true times and losses, predictions, and noisy runs.

A landscape has 1 to 4 dimensions with exposed traffic, and six codecs for each. True times and losses are sums over the
dimensions, except for a deviation of 0.2 % in the time of each scheme. Prediction errors are drawn per dimension and
codec.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcbench.tune.belief import Belief
from hpcbench.tune.choose import Option, list_undominated, sum_options
from hpcbench.tune.prune import LAYERS, NOTABLE
from hpcbench.tune.race import RaceRound, SchemeChoice, decide
from hpcbench.tune.standings import RaceRules, RunOutcome

CODECS = {"none": (1.0, 0.0), "bf16": (0.5, 1.3e-6), "int8": (0.26, 5e-5), "zfp:8": (0.25, 3e-3)}
CODECS |= {"int4": (0.14, 1e-2), "topk": (0.05, 0.6)}
"""Wire bytes per byte, and relative mean squared error for Gaussian values."""
BASELINE = "none"
CONTROLS = ("bf16", "int8")
"""Codecs that each search, like ``hpcbench tune``, also runs for all traffic."""


@dataclass(frozen=True)
class Noise:
    """Scatter of runs."""

    own_time: float = 0.01
    shared_time: float = 0.08
    memory: float = 0.3
    """Correlation of successive runs of a scheme."""
    own_loss: float = 0.0015
    shared_loss: float = 0.01


@dataclass
class Landscape:
    """A landscape whose truth is known."""

    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    """True step time of each scheme, relative to the baseline."""
    losses: dict[str, float] = field(default_factory=dict)
    """True relative increase of each scheme's loss."""
    options: dict[str, list[Option]] = field(default_factory=dict)
    """Predictions."""

    def best_within(self, budget: float) -> float:
        """Return the time of the fastest scheme within the budget."""
        return min(time for name, time in self.seconds.items() if self.losses[name] <= budget)


def name_scheme(codecs: Mapping[str, str]) -> str:
    """Return the name of a combination of codecs."""
    return BASELINE if set(codecs.values()) <= {"none"} else ",".join(codecs.values())


def make_landscape(
    seed: int, *, time_error: float = 0.15, loss_error: float = 0.7, own_error: float = 0.002
) -> Landscape:
    """Draw a landscape.

    Parameters
    ----------
    seed
        Seed of the draw.
    time_error
        Relative error of the predicted time that a codec saves in a dimension.
    loss_error
        Standard deviation of log(predicted loss / true loss).
    own_error
        Standard deviation of the part of a scheme's log time that is not the sum over the dimensions.
    """
    draw = random.Random(seed)
    landscape = Landscape(seed)
    names = ["DP", "TP", "PP", "ZERO"][: draw.randint(1, 4)]
    exposed = draw.uniform(0.02, 0.75)
    parts = [draw.expovariate(1.0) for _ in names]
    speed = math.exp(draw.gauss(math.log(0.1), 0.8))  # Codec time relative to the time of the uncompressed message.
    truth: dict[str, list[Option]] = {}
    for name, part in zip(names, parts, strict=True):
        share = exposed * part / sum(parts)
        sensitivity = math.exp(draw.gauss(math.log(3.0), 2.0))
        truth[name], landscape.options[name] = [], []
        for codec, (ratio, error) in CODECS.items():
            cost = 0.0 if codec in ("none", "bf16") else speed * share * math.exp(draw.gauss(0, 0.3))
            seconds = share * (ratio - 1) + cost
            loss = sensitivity * error * math.exp(draw.gauss(0, 0.5)) if error else 0.0
            truth[name].append(Option(codec, seconds, loss))
            seen = seconds * (1 + draw.gauss(0, time_error))
            landscape.options[name].append(Option(codec, seen, loss * math.exp(draw.gauss(0, loss_error))))
    for choices in itertools.product(*truth.values()):
        key = name_scheme({dimension: each.codec for dimension, each in zip(names, choices, strict=True)})
        factor = 1.0 if key == BASELINE else math.exp(draw.gauss(0, own_error))
        landscape.seconds[key] = (1 + sum(each.seconds for each in choices)) * factor
        landscape.losses[key] = sum(each.loss for each in choices)
    return landscape


class Machine:
    """Runs of a landscape's schemes, with noise."""

    def __init__(self, landscape: Landscape, noise: Noise) -> None:
        self._landscape, self._noise = landscape, noise
        self._draw = random.Random(landscape.seed + 10**6)
        self._last: dict[str, float] = {}
        self.runs = 0

    def run(self, schemes: Sequence[str]) -> dict[str, RunOutcome]:
        """Run some schemes with one seed in one allocation."""
        noise, draw = self._noise, self._draw
        place, seed = draw.gauss(0, noise.shared_time), draw.gauss(0, noise.shared_loss)
        outcomes = {}
        for name in schemes:
            fresh = draw.gauss(0, noise.own_time)
            before = self._last.get(name)
            deviation = fresh if before is None else noise.memory * before + math.sqrt(1 - noise.memory**2) * fresh
            self._last[name] = deviation
            seconds = self._landscape.seconds[name] * math.exp(place + deviation)
            loss = 3.0 * (1 + self._landscape.losses[name] + seed + draw.gauss(0, noise.own_loss))
            outcomes[name] = RunOutcome(seconds, loss)
            self.runs += 1
        return outcomes


@dataclass(frozen=True)
class Found:
    """Result of a search."""

    choice: SchemeChoice
    runs: int
    schemes: int
    """Number of schemes in the landscape."""
    excess: float
    """Time of the chosen scheme relative to the best time within the budget, minus 1."""
    loss: float
    """True increase of the loss of the chosen scheme."""
    gains: bool
    """Whether the chosen scheme is faster than the baseline."""


def search(landscape: Landscape, noise: Noise, *, budget: float = 0.01, max_runs: int = 12) -> Found:
    """Search a landscape as ``hpcbench tune`` does, with one run to estimate losses."""
    total = len(landscape.seconds)
    best = landscape.best_within(budget)
    combinations = list_undominated(landscape.options, LAYERS)
    if -min(each.seconds for each in combinations) < NOTABLE:
        return Found(
            SchemeChoice(BASELINE, "nothing can pay", confirmed=False), 0, total, 1 / best - 1, 0.0, gains=False
        )
    named = {name_scheme(each.codecs): each for each in combinations}
    controls = []
    for codec in CONTROLS:
        codecs = dict.fromkeys(landscape.options, codec)
        controls.append(name_scheme(codecs))
        named.setdefault(controls[-1], sum_options(landscape.options, codecs))
    machine, rounds = Machine(landscape, noise), list[RaceRound]()
    rules, belief = RaceRules(BASELINE, budget), Belief(landscape.options, named, BASELINE, budget)
    while True:
        step = decide(belief, controls, rounds, rules, max_runs - 1 - machine.runs)
        if isinstance(step, SchemeChoice):
            break
        rounds.append(RaceRound(step.phase, machine.run(step.schemes)))
    excess = landscape.seconds[step.scheme] / best - 1
    loss, gains = landscape.losses[step.scheme], landscape.seconds[step.scheme] < 1
    return Found(step, machine.runs + 1, total, excess, loss, gains)
