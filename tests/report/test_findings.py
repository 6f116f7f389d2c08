"""Tests of findings about two schemes at a fraction of the significance level, and of simulated error rates."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hpcbench.report import evidence
from hpcbench.report.evidence import Evidence, decide
from hpcbench.report.findings import (
    AS_FAST,
    LossFinding,
    LossTest,
    SpeedFinding,
    SpeedTest,
    compute_margin,
)
from hpcbench.report.hierarchy import LEVEL, Allotment, Chains, Shares
from hpcbench.report.kinds import SchemeKind
from hpcbench.report.looks import LOOKS, compute_level_part
from hpcbench.report.statistics import Mean, exponentiate, mean_interval

MARGIN = 0.01


def share(pairs: int) -> float:
    """Return the fraction for which a comparison of `pairs` pairs is tested at the full significance level."""
    return LEVEL / compute_level_part(pairs)


def speed(*ratios: float) -> SpeedFinding:
    return SpeedTest.of([(ratio, 1.0) for ratio in ratios], MARGIN).finding(share(len(ratios)))


def loss(*changes: float) -> LossFinding:
    return LossTest.of([(2.0 + change, 2.0) for change in changes], 0.02).finding(share(len(changes)))


@pytest.mark.parametrize(
    ("ratios", "shown", "slower"),
    [
        ((1.20, 1.21, 1.22), "faster", False),
        ((1.0020, 1.0021, 1.0022), "faster", False),
        ((0.99, 1.00, 1.06), "inconclusive", False),
        ((0.998, 1.0, 1.001), "not faster", False),
        ((0.90, 0.91, 0.92), "not faster", True),
        # Within 3 %, and neither significantly faster nor significantly below a gain of 1 %.
        ((0.995, 1.012, 1.01, 1.002), "as fast", False),
        ((1.5,), "inconclusive", False),
    ],
)
def test_words_of_speed(ratios: tuple[float, ...], shown: str, slower: bool) -> None:
    finding = speed(*ratios)
    assert (finding.shown, finding.slower) == (shown, slower)
    assert (finding.equal is None) == (len(ratios) == 1)


@pytest.mark.parametrize(
    ("changes", "shown", "side"),
    [
        ((0.0, 0.0, 0.0), "no worse", None),
        ((-0.002, 0.001, 0.002), "no worse", None),
        ((0.0050, 0.0052, 0.0051), "no worse", None),
        ((0.10, 0.11, 0.12), "worse", "worse"),
        ((-0.10, -0.11, -0.12), "better", "better"),
        # A significant difference, but not significantly beyond the margin.
        ((0.0205, 0.021, 0.0195), "inconclusive", None),
        # Neither a significant difference nor equivalence.
        ((-0.02, 0.01, 0.03), "inconclusive", None),
        ((0.0,), "inconclusive", None),
    ],
)
def test_words_of_loss(changes: tuple[float, ...], shown: str, side: str | None) -> None:
    finding = loss(*changes)
    assert (finding.shown, finding.side, finding.margin) == (shown, side, pytest.approx(0.02))


def test_a_speed_is_judged_by_its_intervals() -> None:
    """The 95 % interval determines significance, and the 90 % interval determines equivalence within a margin."""
    rng = random.Random(5)
    seen = set()
    for _ in range(300):
        ratios = [math.exp(rng.gauss(0.01, 0.02)) for _ in range(rng.randint(2, 6))]
        shown = speed(*ratios)
        near = exponentiate(mean_interval([math.log(ratio) for ratio in ratios], 0.9))
        assert shown.low is not None and shown.high is not None and near.low is not None and near.high is not None
        if shown.low > 1 or shown.high < 1:
            word = "faster" if shown.low > 1 else "not faster"
        elif near.high < 1 + MARGIN:
            word = "not faster"
        else:
            word = "as fast" if near.low > 1 / (1 + AS_FAST) and near.high < 1 + AS_FAST else "inconclusive"
        assert shown.shown == word
        seen.add(word)
    assert len(seen) == 4


def test_the_same_pairs_show_less_with_a_smaller_share() -> None:
    test = SpeedTest.of([(1.02, 1.0), (1.03, 1.0), (1.04, 1.0)], MARGIN)
    alone, among = test.finding(share(3)), test.finding(share(3) / 4)
    assert (alone.shown, among.shown) == ("faster", "inconclusive")
    assert alone.equal is not None and among.equal is not None
    assert alone.equal.adjusted == pytest.approx(alone.equal.raw)
    assert among.equal.adjusted == pytest.approx(4 * among.equal.raw)
    # Intervals are not corrected for multiple comparisons.
    assert (among.low, among.high) == (alone.low, alone.high)
    assert test.finding(0.0).shown == "inconclusive", "without a share nothing is asked"


def test_more_pairs_use_a_smaller_part_of_the_level() -> None:
    """Using the same part each time would increase the probability of a false finding with each report."""
    few, more = (SpeedTest.of([(1.0, 1.0), (1.01, 1.0)] * n, MARGIN).finding(LEVEL) for n in (2, 4))
    assert few.equal and more.equal
    assert (few.equal.level, more.equal.level) == (LEVEL * compute_level_part(4), LEVEL * compute_level_part(8))


def test_one_pair_has_no_test() -> None:
    lone = SpeedTest.of([(1.3, 1.0)], MARGIN)
    assert lone.question is None
    assert (lone.finding(LEVEL).equal, lone.finding(LEVEL).enough, lone.finding(LEVEL).low) == (None, None, None)
    assert LossTest.of([(2.0, 2.0)], 0.02).question is None


def test_the_question_says_which_share_decides() -> None:
    """The comparison is significant just above the smallest fraction, but not just below it."""
    rng = random.Random(8)
    for _ in range(25):
        values = [(math.exp(rng.gauss(0.05, 0.02)), 1.0) for _ in range(rng.randint(2, 9))]
        test = SpeedTest.of(values, MARGIN)
        assert test.question is not None and test.question.side <= test.question.complete
        for factor, differs in ((1.001, True), (0.999, False)):
            equal = test.finding(factor * test.question.side).equal
            assert equal is not None and equal.rejects == differs
        losses = LossTest.of([(2 + rng.gauss(0.03, 0.02), 2.0) for _ in range(rng.randint(2, 9))], 0.02)
        assert losses.question is not None
        assert losses.finding(1.001 * losses.question.complete).shown != "inconclusive"
        assert losses.finding(0.999 * losses.question.complete).shown == "inconclusive"


def test_repeats_that_would_be_enough_are_looks() -> None:
    few = speed(1.02, 1.05, 1.03, 0.99)
    assert few.shown == "inconclusive" and few.enough in LOOKS and few.enough > 4
    assert speed(1.20, 1.21, 1.22).enough is None
    assert speed(0.2, 1.0, 5.2).enough is None, "as the pairs scatter, no number is enough"
    close = loss(-0.02, 0.01, 0.03)
    assert close.enough in LOOKS and close.enough > 3


def test_the_worst_pair_is_held_against_the_margin() -> None:
    assert loss(0.001, -0.001, 0.002).steady
    spiked = loss(*([0.0] * 40), 0.1)
    assert (spiked.shown, spiked.steady, spiked.worst) == ("no worse", False, pytest.approx(0.1))


@dataclass
class Rates:
    """Fractions of the simulated studies, and of their schemes."""

    false_any: float
    false_speed: float
    false_loss: float
    right_speed: float
    right_loss: float


def simulate(effects: list[tuple[float, float]], pairs: int, studies: int = 200, *, matched: bool = True) -> Rates:
    """Simulate studies with a shared baseline. If `matched`, the values of a pair share machine and seed."""
    rng = random.Random(6)
    false_any = false_speed = false_loss = right_speed = right_loss = 0
    margins = math.log1p(MARGIN), MARGIN * 2.5
    for _ in range(studies):
        shared = [(rng.gauss(0, 0.1), rng.gauss(0, 0.02)) for _ in range(pairs)]
        runs = [
            [
                (math.exp(machine + speed + rng.gauss(0, 0.005)), 2.5 + seed + loss + rng.gauss(0, 0.004))
                for machine, seed in shared
            ]
            for speed, loss in [(0.0, 0.0), *effects]
        ]
        base = runs[0] if matched else [*runs[0][1:], runs[0][0]]
        values = {str(k): list(zip(pairs, base, strict=True)) for k, pairs in enumerate(runs[1:])}
        speeds = {k: SpeedTest.of([(a[0], b[0]) for a, b in pairs], MARGIN) for k, pairs in values.items()}
        pairs_of_losses = {k: [(a[1], b[1]) for a, b in pairs] for k, pairs in values.items()}
        losses = {k: LossTest.of(pairs, compute_margin(pairs, MARGIN)) for k, pairs in pairs_of_losses.items()}
        (findings,) = decide([Evidence(dict.fromkeys(values, SchemeKind.ONE_CODEC), speeds, losses)])
        wrong_speed = wrong_loss = False
        for k, (speed, loss) in enumerate(effects):
            shown, change = findings.speed[str(k)], findings.loss[str(k)]
            wrong_speed |= shown.shown == "faster" and speed <= 0
            wrong_speed |= shown.shown == "not faster" and speed >= margins[0]
            wrong_speed |= shown.slower and speed >= 0
            wrong_loss |= change.shown == "no worse" and abs(loss) >= margins[1]
            wrong_speed |= shown.shown == "as fast" and abs(speed) >= math.log1p(AS_FAST)
            wrong_loss |= {"worse": loss < margins[1], "better": loss > -margins[1], None: False}[change.side]
            right_speed += shown.shown in (("faster",) if speed > 0 else ("not faster", "as fast"))
            right_loss += change.shown == ("no worse" if not loss else "worse" if loss > 0 else "better")
        false_speed += wrong_speed
        false_loss += wrong_loss
        false_any += wrong_speed or wrong_loss
    schemes = studies * len(effects)
    return Rates(
        false_any / studies, false_speed / studies, false_loss / studies, right_speed / schemes, right_loss / schemes
    )


AT_MARGIN = (math.log1p(MARGIN), MARGIN * 2.5)
BOUND = 0.05 + 2.6 * (0.05 * 0.95 / 200) ** 0.5
"""Bound for 200 studies: 5 % false findings, plus an excess that is reached by chance in one of 200 tries."""


@pytest.mark.parametrize(
    "effects",
    [
        [(0.0, 0.0)] * 6,
        [AT_MARGIN] * 6,
        [(0.0, AT_MARGIN[1]), (AT_MARGIN[0], 0.0)] * 2 + [(0.1, 0.1), (-0.1, -0.1)],
    ],
    ids=["no effect", "at the margin", "mixed"],
)
@pytest.mark.parametrize("pairs", [3, 8])
def test_at_most_one_study_in_twenty_has_a_false_finding(effects: list[tuple[float, float]], pairs: int) -> None:
    """The significance level covers the speed and loss of all schemes together."""
    assert simulate(effects, pairs).false_any <= BOUND


def test_true_effects_are_found() -> None:
    shares = simulate([(0.08, 0.1), (-0.08, -0.1), (0.08, 0.0)], 5, 200)
    assert shares.right_speed > 0.9
    assert shares.right_loss > 0.9


def undivided(cells: list[Chains]) -> list[Allotment]:
    """Test each question as if it were the only question, and as if this report were the only one."""
    alone = Shares(LEVEL / compute_level_part(3), LEVEL / compute_level_part(3))
    return [Allotment(dict.fromkeys(cell.answers, alone), {}, {}, {}) for cell in cells]


def no_difference_found(mean: Mean, margin: float) -> float:
    """Mistake a large p-value for evidence of equality."""
    return 0.0 if mean.p_two_sided() > 0.05 else 1.0


@pytest.mark.parametrize(
    ("where", "name", "fault", "effect"),
    [(evidence, "divide_level", undivided, (0.0, 0.0)), (Mean, "p_within", no_difference_found, AT_MARGIN)],
    ids=["level not divided", "equivalence by non-significance"],
)
def test_faults_make_false_findings(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    fault: Callable[..., object],
    effect: tuple[float, float],
) -> None:
    """Other procedures exceed the bounds of the preceding tests."""
    monkeypatch.setattr(where, name, fault)
    assert simulate([effect] * 6, 3).false_any > 1.5 * BOUND


def test_pairs_that_are_none_find_nothing() -> None:
    assert simulate([(0.05, 0.0)] * 3, 5, 100, matched=False).right_speed < 0.1
