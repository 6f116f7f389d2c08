"""Comparison of schemes at one rate: ratios over pairs of runs of the same repeat, and their significance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hpcbench.report.findings import Key, SpeedFinding, SpeedTest, Values
from hpcbench.report.hierarchy import LEVEL, Chain, Question, ask_family
from hpcbench.report.looks import compute_level_part
from hpcbench.report.statistics import Interval, paired_difference, paired_ratio

MARGIN = 0.01
"""Smallest relevant gain: the default of studies."""
Runs = dict[str, dict[int, dict[str, Any]]]
"""Scheme -> repeat -> run."""


@dataclass(frozen=True)
class Column:
    """All runs at one rate and with one value of the other setting that varies."""

    rate: str | None
    """Rate of the links, or None without a limit."""
    cell: dict[str, Any]
    runs: Runs

    @property
    def where(self) -> str:
        """Rate of the links as text."""
        return f"at links of {self.rate}" if self.rate else "without a limit"

    def pairs(self, scheme: str, other: str, value: str = "samples_per_s") -> list[tuple[float, float]]:
        """Yield the values of two schemes for each repeat that contains both."""
        ours, two = self.runs[scheme], self.runs[other]
        return [(ours[k][value], two[k][value]) for k in sorted(ours.keys() & two.keys())]

    def mean(self, scheme: str, value: Callable[[dict[str, Any]], float]) -> float:
        """Return the mean of a value over the repeats of a scheme."""
        return fmean(value(run) for run in self.runs[scheme].values())


@dataclass(frozen=True)
class Row:
    """Results of a scheme at a rate."""

    scheme: str
    samples_per_s: float
    speed: Interval
    """Speed relative to the baseline."""
    link: Interval | None
    """Effect of the limit: the relative speed with a limit divided by the relative speed without a limit."""
    wire: float | None
    """Bytes between hosts, relative to `identity`."""
    ideal: float | None
    """Upper bound of the limit's effect on the speed, computed from the bytes alone."""
    exposed_s: float
    hidden_s: float
    """Exposed and hidden communication in seconds per step and rank."""
    loss: Interval
    """Validation loss minus that of the baseline."""


def columns(document: dict[str, Any]) -> list[Column]:
    """Group the runs by cell and rate. Cells keep their order, and runs without a limit come first."""
    runs = document["runs"]
    cells = [cell for k, cell in enumerate(run["cell"] for run in runs) if cell not in [r["cell"] for r in runs[:k]]]
    cells.sort(key=lambda cell: list(cell.values()))
    columns_of_rates = []
    for cell in cells:
        for rate in (None, *(document["rates"] or ())):
            runs_of_scheme: Runs = {scheme: {} for scheme in document["schemes"]}
            for run in runs:
                if run["rate"] == rate and run["cell"] == cell:
                    runs_of_scheme[run["scheme"]][run["repeat"]] = run
            if all(runs_of_scheme.values()):
                columns_of_rates.append(Column(rate, cell, runs_of_scheme))
    return columns_of_rates


def rows(column: Column, free: Column | None, ranks: int) -> list[Row]:
    """Return a row for each scheme, in study order.

    Parameters
    ----------
    free
        Runs without a limit, if measured.
    """

    def spent(name: str) -> Callable[[dict[str, Any]], float]:
        return lambda run: sum(dimension[name] for dimension in run["traffic"].values()) / ranks

    rows_of_table = []
    for scheme in column.runs:
        wire = None
        if "identity" in column.runs and scheme != "baseline":
            plain = column.mean("identity", between_hosts)
            wire = column.mean(scheme, between_hosts) / plain if plain else None
        limited = free is not None and column.rate is not None
        rows_of_table.append(
            Row(
                scheme,
                column.mean(scheme, lambda run: run["samples_per_s"]),
                _ratio(column.pairs(scheme, "baseline")),
                link_gain(column, free, scheme) if free and limited else None,
                wire,
                ideal(column, free, wire) if free and limited and wire is not None else None,
                column.mean(scheme, spent("exposed_s")),
                column.mean(scheme, spent("hidden_s")),
                paired_difference(*zip(*column.pairs(scheme, "baseline", "valid"), strict=True)),
            )
        )
    return rows_of_table


def between_hosts(run: dict[str, Any]) -> float:
    """Return the number of bytes per step that were sent to another host."""
    return float(sum(dimension["network_bytes"] for dimension in run["traffic"].values()))


def link_gain(limited: Column, free: Column, scheme: str) -> Interval:
    """Return the relative speed with a limit, divided by the relative speed without a limit, paired by repeat.

    The processor time that a codec costs or saves is the same in both ratios and cancels.
    """
    base, runs_of_scheme = limited.runs["baseline"], limited.runs[scheme]
    common = sorted(base.keys() & runs_of_scheme.keys())

    def gains(column: Column) -> list[float]:
        runs = column.runs
        return [runs[scheme][k]["samples_per_s"] / runs["baseline"][k]["samples_per_s"] for k in common]

    return paired_ratio(gains(limited), gains(free))


def share_of_link(limited: Column, free: Column) -> Interval:
    """Return the fraction of the baseline's time that is due to the limit, paired by repeat."""
    ours, two = limited.runs["baseline"], free.runs["baseline"]
    share_left = _ratio([(ours[k]["samples_per_s"], two[k]["samples_per_s"]) for k in sorted(ours)])
    low, high = (None if end is None else 1 - end for end in (share_left.high, share_left.low))
    return Interval(1 - share_left.estimate, low, high, share_left.pairs)


def ideal(limited: Column, free: Column, wire: float) -> float:
    """Compute the gain if the limit cost only the fraction `wire` of what it costs the baseline."""
    return 1 / (1 - share_of_link(limited, free).estimate * (1 - wire))


def beside(column: Column, control: str) -> dict[str, SpeedFinding]:
    """Compare the speed of every other scheme with that of the control. Correct the p-values for all schemes."""
    return compare_speeds(
        {scheme: column.pairs(scheme, control) for scheme in column.runs if scheme != control}, MARGIN
    )


def beside_in_all(cells: Sequence[Column], control: str) -> list[dict[str, SpeedFinding]]:
    """Compare the schemes of each column with the control. Correct the p-values for all columns together."""
    family = {
        (k, scheme): column.pairs(scheme, control)
        for k, column in enumerate(cells)
        for scheme in column.runs
        if scheme != control
    }
    findings = compare_speeds(family, MARGIN)
    return [{scheme: findings[i, scheme] for i, scheme in family if i == k} for k in range(len(cells))]


def compare_speeds(family: Mapping[Key, Values], margin: float) -> dict[Key, SpeedFinding]:
    """Compare speeds as one family (Holm), for a single look at a number of pairs that was fixed in advance."""
    tests = {key: SpeedTest.of(values, margin) for key, values in family.items()}
    parts = {key: compute_level_part(test.mean.count) for key, test in tests.items()}
    questions = {key: test.question for key, test in tests.items()}
    chains = {
        key: Chain(Question(question.side * parts[key], question.complete * parts[key]))
        for key, question in questions.items()
        if question is not None
    }
    shares = ask_family(chains, LEVEL)
    return {key: test.finding(shares[key].speed / parts[key] if key in shares else 0.0) for key, test in tests.items()}


def _ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    return paired_ratio([ours for ours, _ in pairs], [two for _, two in pairs])
