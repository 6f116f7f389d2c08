"""Simulated studies with known truth, which the report's code compares."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean

from hpcbench.collect.submission import RunResult
from hpcbench.contract.criteria import Criteria
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.report.compare import Cell, compare
from hpcbench.report.measures import Measures, measure

BASE_LOSS, BASE_RATE = 2.5, 100.0
SHARED = 0.1, 0.02
"""Standard deviation between pairs, of the log speed and of the loss."""
RUN_NOISE = 0.01, 0.004
"""Standard deviation of the log speed and of the loss between runs."""
CRITERIA = Criteria()
MARGINS = math.log1p(CRITERIA.speed_margin), CRITERIA.loss_margin * BASE_LOSS
Effect = tuple[float, float]
"""Effect of a scheme on the log speed and on the loss."""
Noise = Callable[[random.Random], float]
"""Function that draws a number with mean 0 and standard deviation 1."""


def normal(rng: random.Random) -> float:
    """Draw normal noise."""
    return rng.gauss(0, 1)


def heavy(rng: random.Random) -> float:
    """Draw from Student's t with 3 degrees of freedom, whose standard deviation is sqrt(3)."""
    return rng.gauss(0, 1) / math.sqrt(2 * rng.gammavariate(1.5, 1))


def steps(rng: random.Random) -> float:
    """Draw means of 100 correlated steps, divided by their standard deviation."""
    return fmean(ar1(rng, 100, 0.8)) / 0.29326


NOISES: dict[str, Noise] = {"normal": normal, "heavy": heavy, "steps": steps}


def ar1(rng: random.Random, n: int, memory: float) -> list[float]:
    """Draw `n` normal values with standard deviation 1.

    Each value is the previous value times `memory`, plus new noise.
    """
    values = [rng.gauss(0, 1)]
    new = math.sqrt(1 - memory * memory)
    for _ in range(n - 1):
        values.append(memory * values[-1] + new * rng.gauss(0, 1))
    return values


def planted(
    run: str,
    scheme: str,
    pairing: str,
    rate: float,
    loss: float,
    codec: str | None = None,
    cell: dict[str, int] | None = None,
    repeat: int = 1,
) -> Measures:
    """Return the measures of a completed run. The codec's name determines the kind of scheme in the report."""
    settings = {"scheme": {"default": codec, "rules": []}} if codec else {}
    ended = ResolvedState("completed")
    result = RunResult(
        run, "study", "site", scheme, repeat, pairing, cell or {}, ended, None, LoggedSettings.read(settings)
    )
    return replace(nothing_measured(), run=result, samples_per_s=rate, loss_valid=loss)


@cache
def nothing_measured() -> Measures:
    """Measures of a run without a log."""
    return measure(RunResult("", "", "", "", None, "", {}, ResolvedState("completed"), None))


def study(rng: random.Random, noise: Noise, pairs: int, effects: Sequence[Effect], codecs: Sequence[str] = ()) -> Cell:
    """Make a one-cell study for the report. The first codec is that of the baseline."""
    runs = []
    for pair in range(pairs):
        machine, seed = SHARED[0] * rng.gauss(0, 1), SHARED[1] * rng.gauss(0, 1)
        for k, (speed, loss) in enumerate([(0.0, 0.0), *effects]):
            rate = BASE_RATE * math.exp(machine + speed + RUN_NOISE[0] * noise(rng))
            value = BASE_LOSS + seed + loss + RUN_NOISE[1] * noise(rng)
            scheme = f"scheme{k}" if k else "baseline"
            runs.append(planted(f"r{pair}-{scheme}", scheme, f"r{pair}", rate, value, codecs[k] if codecs else None))
    (cell,) = compare(runs, "baseline", CRITERIA)
    return cell
