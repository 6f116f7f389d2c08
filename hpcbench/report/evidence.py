"""Evidence about schemes: paired values of runs, and findings at the report's common significance level.

Only runs of the same pairing are compared, because they share the seed and the allocation.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from statistics import fmean

from hpcbench.contract.criteria import Criteria
from hpcbench.report.curves import find_losses_at_equal_time, read_curve
from hpcbench.report.duels import Duel
from hpcbench.report.findings import Key, LossFinding, LossTest, SpeedFinding, SpeedTest, Values, compute_margin
from hpcbench.report.hierarchy import Allotment, Chain, Chains, Shares, divide_level
from hpcbench.report.kinds import SchemeKind
from hpcbench.report.measures import Measures, compute_common_rate, select_completed
from hpcbench.report.statistics import is_usable

Both = tuple[float | None, float | None]
Pair = tuple[str, str]
"""Names of two schemes."""


@dataclass(frozen=True)
class Evidence:
    """Compared values of a cell, before findings are computed."""

    kinds: Mapping[str, SchemeKind]
    """Kinds of the schemes that are paired with the baseline."""
    speeds: Mapping[str, SpeedTest] = field(default_factory=dict)
    losses: Mapping[str, LossTest] = field(default_factory=dict)
    times: Mapping[str, LossTest] = field(default_factory=dict)
    """Tests of the losses at equal time."""
    gains: Mapping[Pair, SpeedTest] = field(default_factory=dict)
    """Speed of each scheme with a codec relative to each control without a codec."""
    duel_speeds: Mapping[Pair, SpeedTest] = field(default_factory=dict)
    duel_losses: Mapping[Pair, LossTest] = field(default_factory=dict)

    @property
    def chains(self) -> Chains:
        """Questions in the order in which they are decided."""
        answers: dict[Hashable, Chain] = {}
        controls: dict[Hashable, Chain] = {}
        for scheme, kind in self.kinds.items():
            gains = tuple(test.question for (coded, _), test in self.gains.items() if coded == scheme)
            chain = _make_chain(self.speeds.get(scheme), self.losses.get(scheme))
            if chain is not None:
                asked = tuple(gain for gain in gains if gain is not None)
                (controls if kind is SchemeKind.PLAIN else answers)[scheme] = Chain(chain.speed, chain.loss, asked)
        pairs = dict.fromkeys((*self.duel_speeds, *self.duel_losses))
        duels = ((pair, _make_chain(self.duel_speeds.get(pair), self.duel_losses.get(pair))) for pair in pairs)
        times = ((scheme, _make_chain(None, test)) for scheme, test in self.times.items())
        return Chains(answers, controls, _select_asked(duels), _select_asked(times))


def _make_chain(speed: SpeedTest | None, loss: LossTest | None) -> Chain | None:
    """Return the chain of questions about two schemes, or None for a single pair of runs, which cannot be tested."""
    chain = Chain(speed.question if speed else None, loss.question if loss else None)
    return None if chain == Chain() else chain


def _select_asked(chains: Iterable[tuple[Hashable, Chain | None]]) -> dict[Hashable, Chain]:
    return {key: chain for key, chain in chains if chain is not None}


@dataclass(frozen=True)
class Findings:
    """Findings about a cell."""

    speed: Mapping[str, SpeedFinding]
    loss: Mapping[str, LossFinding]
    loss_in_time: Mapping[str, LossFinding]
    gains: tuple[Duel, ...]
    duels: tuple[Duel, ...]


def decide(cells: Sequence[Evidence]) -> list[Findings]:
    """Decide all questions about the cells of a report at a common significance level."""
    allotments = divide_level([cell.chains for cell in cells])
    return [_make_findings(cell, allotment) for cell, allotment in zip(cells, allotments, strict=True)]


def _make_findings(cell: Evidence, allotment: Allotment) -> Findings:
    nothing = Shares()
    shares = {**allotment.answers, **allotment.controls}
    shares_of_scheme = {scheme: shares.get(scheme, nothing) for scheme in (*cell.speeds, *cell.losses)}
    gains = dict.fromkeys(cell.gains, 0.0)
    for scheme in shares_of_scheme:
        asked = [pair for pair, test in cell.gains.items() if pair[0] == scheme and test.question]
        gains |= zip(asked, shares_of_scheme[scheme].gains, strict=False)
    duels = []
    for pair in dict.fromkeys((*cell.duel_speeds, *cell.duel_losses)):
        given = allotment.duels.get(pair, nothing)
        speed, loss = cell.duel_speeds.get(pair), cell.duel_losses.get(pair)
        # A duel that was decided by a gain remains decided.
        gain = max(gains.get(pair, 0.0), gains.get(pair[::-1], 0.0))
        shown = speed.finding(given.speed, gain) if speed else None
        duels.append(Duel(*pair, shown, loss.finding(given.loss) if loss else None))
    return Findings(
        {scheme: test.finding(shares_of_scheme[scheme].speed) for scheme, test in cell.speeds.items()},
        {scheme: test.finding(shares_of_scheme[scheme].loss) for scheme, test in cell.losses.items()},
        {scheme: test.finding(allotment.times.get(scheme, nothing).loss) for scheme, test in cell.times.items()},
        tuple(Duel(*pair, test.finding(gains[pair]), None) for pair, test in cell.gains.items()),
        tuple(duels),
    )


def gather(
    schemes: Mapping[str, Sequence[Measures]],
    base: Sequence[Measures],
    kinds: Mapping[str, SchemeKind],
    idle: Sequence[str],
    criteria: Criteria,
) -> Evidence:
    """Gather the values of a cell's schemes, paired with the baseline and with each other.

    `schemes` excludes the baseline (`base`) and diverged schemes. `idle` schemes, whose codecs encoded nothing, are
    compared only with the baseline.
    """
    pairs = {scheme: pair_runs(runs, base) for scheme, runs in schemes.items()}
    curves = {
        other.run.pairing: read_curve(other.run.log)
        for pairs_of_scheme in pairs.values()
        for _, other in pairs_of_scheme
    }

    def in_time(mine: Measures, other: Measures) -> Both:
        return find_losses_at_equal_time(read_curve(mine.run.log), curves[other.run.pairing])

    speeds = _make_speed_tests(pairs, criteria)
    rivals = [scheme for scheme in speeds if scheme not in idle]
    coded = [
        scheme
        for scheme in rivals
        if not kinds[scheme].is_control and not schemes[scheme][0].run.settings.scheme.process_changes
    ]
    plain = [scheme for scheme in rivals if kinds[scheme] is SchemeKind.PLAIN]
    gains = {pair: pair_runs(*(schemes[scheme] for scheme in pair)) for pair in product(coded, plain)}
    duels = {pair: pair_runs(*(schemes[scheme] for scheme in pair)) for pair in combinations(rivals, 2)}
    return Evidence(
        {scheme: kinds[scheme] for scheme in pairs},
        speeds,
        _make_loss_tests(pairs, read_valid_losses, criteria),
        _make_loss_tests(pairs, in_time, criteria),
        _make_speed_tests(gains, criteria),
        _make_speed_tests(duels, criteria),
        _make_loss_tests(duels, read_valid_losses, criteria, of_both=True),
    )


def _make_speed_tests(pairs: Mapping[Key, list[tuple[Measures, Measures]]], criteria: Criteria) -> dict[Key, SpeedTest]:
    return {key: SpeedTest.of(values, criteria.speed_margin) for key, values in group_values(pairs, read_rates).items()}


def _make_loss_tests(
    pairs: Mapping[Key, list[tuple[Measures, Measures]]],
    losses: Callable[[Measures, Measures], Both],
    criteria: Criteria,
    *,
    of_both: bool = False,
) -> dict[Key, LossTest]:
    return {
        key: LossTest.of(values, compute_margin(values, criteria.loss_margin, of_both=of_both))
        for key, values in group_values(pairs, losses, _seed).items()
    }


def _seed(run: Measures) -> Hashable:
    """Return a grouping key for runs with the same seed: the repeat in joined submissions, otherwise the pairing."""
    return run.run.repeat if run.run.submission else run.run.pairing


def read_rates(mine: Measures, other: Measures) -> Both:
    """Return the samples/s, or another common rate, of two runs over the steps that both runs counted."""
    return compute_common_rate(mine, other) or (None, None)


def read_valid_losses(mine: Measures, other: Measures) -> Both:
    """Return the validation losses of two runs after the last step."""
    return mine.loss_valid, other.loss_valid


def group_values(
    pairs: Mapping[Key, list[tuple[Measures, Measures]]],
    values: Callable[[Measures, Measures], Both],
    same: Callable[[Measures], Hashable] = lambda run: run.run.pairing,
) -> dict[Key, Values]:
    """Return the values of complete pairs, by scheme. Schemes without a complete pair are omitted.

    Pairs for which `same` returns the same key, such as pairs of losses with the same seed, are not independent. The
    values of such pairs are averaged.
    """
    families: dict[Key, Values] = {}
    for scheme, pairs_of_scheme in pairs.items():
        groups: dict[Hashable, list[tuple[float, float]]] = {}
        for mine, other in pairs_of_scheme:
            a, b = values(mine, other)
            if a is not None and b is not None and is_usable(a) and is_usable(b):
                groups.setdefault(same(mine), []).append((a, b))
        if groups:
            families[scheme] = [(fmean(a for a, _ in group), fmean(b for _, b in group)) for group in groups.values()]
    return families


def pair_runs(runs: Sequence[Measures], base: Sequence[Measures]) -> list[tuple[Measures, Measures]]:
    """Pair completed runs of a scheme with the baseline's runs of the same pairing, in the order of the repeats."""
    mine, others = index_by_pairing(runs), index_by_pairing(base)
    order = sorted(mine, key=lambda pairing: (mine[pairing].run.submission, mine[pairing].run.repeat or 0, pairing))
    return [(mine[pairing], others[pairing]) for pairing in order if pairing in others]


def index_by_pairing(runs: Sequence[Measures]) -> dict[str, Measures]:
    """Index completed runs by pairing. If several runs have the same pairing, the first is used."""
    return {run.run.pairing: run for run in reversed(select_completed(runs))}
