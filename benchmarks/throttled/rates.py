"""Link rates that cost the baseline a given fraction of its time."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts
from throttled.start import train

TRIAL = "100mbit"
"""Rate of the trial that measures the cost of a limit."""


def calibrate(hosts: Hosts, run: dict[str, Any], shares: Sequence[float], *, ranks_a_host: int) -> list[str]:
    """Return rates at which a limit costs this run about the given percentages of its time."""
    tasks = [(rate, run) for rate in (None, TRIAL) for _ in range(3)]
    finished = train(hosts, tasks, ranks_a_host=ranks_a_host)
    free, limited = (median(each["seconds"] for each in finished if each["rate"] == rate) for rate in (None, TRIAL))
    return choose_rates(free, limited, [share / 100 for share in shares])


def choose_rates(free: float, limited: float, shares: Sequence[float]) -> list[str]:
    """Return rates in whole Mbit/s at which a limit costs the given fractions of the step time.

    The cost of a limit is inversely proportional to the rate: ``cost = (limited - free) * trial / rate``. The ratio
    ``cost / (cost + free)`` must be the given fraction.

    Parameters
    ----------
    free, limited
        Seconds per step without a limit, and at the trial rate.
    shares
        Fractions between 0 and 1.

    Raises
    ------
    UserError
        The cost of the limit in the trial is too small to measure.
    """
    if limited < 1.05 * free:
        raise UserError(f"links of {TRIAL} cost the baseline less than 5 % of its time here: name rates with --rates")
    megabits = (limited - free) * float(TRIAL.removesuffix("mbit"))  # Bits that pass the busiest link in a step.
    return [f"{max(1, round(megabits * (1 - share) / (share * free)))}mbit" for share in shares]
