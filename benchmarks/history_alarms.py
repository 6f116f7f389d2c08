"""False alarms and power of `hpcbench history` on simulated series with a known truth.

    python benchmarks/history_alarms.py [--series 2000] [--tiny]

A series has ten submissions with three runs each. Speeds vary by 1 % between days, and by 0.5 % between runs of a day
(`benchmarks/simulated/speeds.py`). An alarm is a significant change in a series whose true speed is constant. A
slowdown of 6 % counts as found if a change is significant exactly where the speed changed. The goals are at most 5 %
false alarms, and at least 95 % of slowdowns found if two or more submissions are slower.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from provenance import head
from simulated.speeds import simulate_series
from tiny import parse

from hpcbench.report.history.levels import find_changes

LENGTH, LOSS = 10, 0.06


def count_found(series: int, slow: int) -> int:
    """Count the series in which a change is found exactly where the last `slow` submissions begin."""
    factors: Sequence[float] = [1.0] * (LENGTH - slow) + [1 - LOSS] * slow
    places = ({change.at for change in find_changes(simulate_series(factors, seed=seed))} for seed in range(series))
    return sum(LENGTH - slow in each for each in places)


def count_alarms(series: int) -> int:
    """Count the unchanged series in which a change is reported."""
    return sum(bool(find_changes(simulate_series([1.0] * LENGTH, seed=seed))) for seed in range(series))


def main() -> None:
    """Print one line per kind of series."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", type=int, default=2000)
    options = parse(parser, series=20)
    print("\n".join(head(Path(__file__))), end="\n\n", flush=True)
    print(f"no change, alarm reported: {100 * count_alarms(options.series) / options.series:.1f} %")
    for slow in (1, 2, 3, 5):
        share = 100 * count_found(options.series, slow) / options.series
        print(f"{100 * LOSS:.0f} % slower, newest {slow}, found: {share:.1f} %", flush=True)


if __name__ == "__main__":
    main()
