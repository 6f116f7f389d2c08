"""What is shown of a family of schemes: words, corrections, and error rates on simulated studies."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hpcbench.report import findings
from hpcbench.report.findings import LossFinding, SpeedFinding, losses, speeds
from hpcbench.report.statistics import Mean

MARGIN = 0.01


def speed(*ratios: float) -> SpeedFinding:
    return speeds({"a": [(ratio, 1.0) for ratio in ratios]}, MARGIN)["a"]


def loss(*changes: float) -> LossFinding:
    return losses({"a": [(2.0 + change, 2.0) for change in changes]}, MARGIN)["a"]


@pytest.mark.parametrize(
    ("ratios", "shown", "slower"),
    [
        ((1.20, 1.21, 1.22), "faster", False),
        ((1.0020, 1.0021, 1.0022), "faster", False),
        ((0.99, 1.00, 1.06), "not shown", False),
        ((0.998, 1.0, 1.001), "not faster", False),
        ((0.90, 0.91, 0.92), "not faster", True),
        ((1.5,), "not shown", False),
    ],
)
def test_words_of_speed(ratios: tuple[float, ...], shown: str, slower: bool) -> None:
    found = speed(*ratios)
    assert (found.shown, found.slower) == (shown, slower)
    assert (found.equal is None) == (len(ratios) == 1)


@pytest.mark.parametrize(
    ("changes", "shown", "side"),
    [
        ((0.0, 0.0, 0.0), "as good", None),
        ((-0.002, 0.001, 0.002), "as good", None),
        ((0.0050, 0.0052, 0.0051), "as good", "worse"),
        ((-0.0050, -0.0052, -0.0051), "as good", "better"),
        ((0.10, 0.11, 0.12), "worse", "worse"),
        ((-0.10, -0.11, -0.12), "better", "better"),
        # No difference is found, and no equivalence either.
        ((-0.02, 0.01, 0.03), "not shown", None),
        ((0.0,), "not shown", None),
    ],
)
def test_words_of_loss(changes: tuple[float, ...], shown: str, side: str | None) -> None:
    found = loss(*changes)
    assert (found.shown, found.side, found.margin) == (shown, side, pytest.approx(0.02))


def test_one_scheme_is_judged_by_its_interval() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(300):
        found = speed(*(math.exp(rng.gauss(0.01, 0.02)) for _ in range(rng.randint(2, 6))))
        assert found.low is not None and found.high is not None
        words = "faster" if found.low > 1 else "not faster" if found.high < 1 + MARGIN else "not shown"
        assert found.shown == words
        seen.add(words)
    assert len(seen) == 3


def test_the_same_pairs_show_less_beside_others() -> None:
    alone = speed(1.02, 1.03, 1.04)
    assert alone.shown == "faster" and alone.equal is not None and alone.equal.raw == alone.equal.adjusted
    family = {name: [(1.02 + k / 1e4, 1.0), (1.03, 1.0), (1.04, 1.0)] for k, name in enumerate("abcd")}
    found = speeds(family, MARGIN)["a"]
    assert found.shown == "not shown"
    assert found.equal is not None and found.equal.adjusted == pytest.approx(4 * found.equal.raw)
    # Intervals are each for itself.
    assert (found.low, found.high) == (alone.low, alone.high)


def test_a_scheme_of_one_pair_corrects_nothing() -> None:
    found = speeds({"a": [(1.02, 1.0), (1.03, 1.0), (1.04, 1.0)], "b": [(1.3, 1.0)]}, MARGIN)
    assert found["a"].shown == "faster"
    assert (found["b"].equal, found["b"].enough, found["b"].low) == (None, None, None)


def test_repeats_that_would_be_enough() -> None:
    few = speed(1.02, 1.05, 1.03, 0.99)
    assert few.shown == "not shown" and few.enough is not None and 5 <= few.enough <= 20
    assert speed(1.20, 1.21, 1.22).enough is None
    # Between as fast and faster by the margin, less is to be seen than any number of repeats shows.
    assert speed(0.8, 1.0, 1.2).enough is None
    close = loss(-0.02, 0.01, 0.03)
    assert close.enough is not None and close.enough > 3


@dataclass
class Rates:
    """Parts of the simulated studies, and of their schemes."""

    false_speed: float
    false_loss: float
    right_speed: float
    right_loss: float


def simulate(effects: list[tuple[float, float]], pairs: int, studies: int = 200, *, matched: bool = True) -> Rates:
    """Studies with a shared baseline; `matched`: whether values of a pair are of one machine and seed."""
    rng = random.Random(6)
    false_speed = false_loss = right_speed = right_loss = 0
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
        family = {str(k): list(zip(own, base, strict=True)) for k, own in enumerate(runs[1:])}
        speed_found = speeds({k: [(a[0], b[0]) for a, b in own] for k, own in family.items()}, MARGIN)
        loss_found = losses({k: [(a[1], b[1]) for a, b in own] for k, own in family.items()}, MARGIN)
        wrong_speed = wrong_loss = False
        for k, (speed, loss) in enumerate(effects):
            shown, change = speed_found[str(k)], loss_found[str(k)]
            wrong_speed |= shown.shown == "faster" and speed <= 0
            wrong_speed |= shown.shown == "not faster" and speed >= margins[0]
            wrong_speed |= shown.slower and speed >= 0
            wrong_loss |= change.shown == "as good" and abs(loss) >= margins[1]
            wrong_loss |= {"worse": loss <= 0, "better": loss >= 0, None: False}[change.side]
            right_speed += shown.shown == ("faster" if speed > 0 else "not faster")
            right_loss += change.shown == ("as good" if not loss else "worse" if loss > 0 else "better")
        false_speed += wrong_speed
        false_loss += wrong_loss
    schemes = studies * len(effects)
    return Rates(false_speed / studies, false_loss / studies, right_speed / schemes, right_loss / schemes)


AT_MARGIN = (math.log1p(MARGIN), MARGIN * 2.5)
BOUND = 0.05 + 2.6 * (0.05 * 0.95 / 200) ** 0.5
"""Five in a hundred, and what 200 studies may show more of it in one of 200 tries."""


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
def test_at_most_one_family_in_twenty_holds_a_false_finding(effects: list[tuple[float, float]], pairs: int) -> None:
    found = simulate(effects, pairs)
    assert found.false_speed <= BOUND
    assert found.false_loss <= BOUND


def test_true_effects_are_found() -> None:
    found = simulate([(0.05, 0.1), (-0.05, -0.1), (0.05, 0.0)], 5, 200)
    assert found.right_speed > 0.9
    assert found.right_loss > 0.9


def uncorrected(p: list[tuple[float, float]]) -> list[list[float]]:
    """Each hypothesis as if it were alone."""
    return [list(group) for group in p]


def no_difference_found(mean: Mean, margin: float) -> float:
    """A small p-value where no difference is significant: absence of evidence taken for evidence of absence."""
    return 0.0 if mean.p_two_sided() > 0.05 else 1.0


@pytest.mark.parametrize(
    ("where", "name", "fault", "effect"),
    [(findings, "holm", uncorrected, (0.0, 0.0)), (Mean, "p_within", no_difference_found, AT_MARGIN)],
    ids=["uncorrected family", "equivalence by non-significance"],
)
def test_faults_make_false_findings(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    fault: Callable[..., object],
    effect: tuple[float, float],
) -> None:
    """The bounds above are not met by whatever one does."""
    monkeypatch.setattr(where, name, fault)
    assert simulate([effect] * 6, 3).false_loss > 1.5 * BOUND


def test_pairs_that_are_none_find_nothing() -> None:
    assert simulate([(0.05, 0.0)] * 3, 5, 100, matched=False).right_speed < 0.1
