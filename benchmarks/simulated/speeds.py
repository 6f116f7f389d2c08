"""Series of submissions whose speed varies from day to day and, to a lesser degree, from run to run."""

import random
from collections.abc import Sequence

from hpcbench.report.history.read import SubmissionSpeed


def simulate_series(
    factors: Sequence[float], *, seed: int, runs: int = 3, daily: float = 0.01, noise: float = 0.005
) -> list[SubmissionSpeed]:
    """Return one submission of `runs` runs for each day. Element i of `factors` scales the true speed on day i.

    Parameters
    ----------
    daily, noise
        Relative standard deviations between days, and between runs of a day.
    """
    draw = random.Random(seed)
    points = []
    for number, factor in enumerate(factors):
        today = 40 * factor * (1 + draw.gauss(0, daily))
        speeds = tuple(today * (1 + draw.gauss(0, noise)) for _ in range(runs))
        points.append(SubmissionSpeed(f"2026-11-{number + 1:02}T06:00:00Z", f"{number:03}", speeds))
    return points
