"""Tests of the choice of a codec for each dimension, compared with all combinations."""

import itertools
import random

import pytest

from hpcbench.tune.choose import Option, list_undominated, sum_options


def _options(seed: int) -> dict[str, list[Option]]:
    draw = random.Random(seed)
    return {
        dimension: [Option("none", 0.0, 0.0)]
        + [Option(f"c{i}", draw.uniform(-0.3, 0.1), draw.choice([0.0, draw.expovariate(300)])) for i in range(4)]
        for dimension in ("DP", "TP", "PP")
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("budget", [0.0, 0.002, 0.01])
def test_the_fastest_of_all_combinations_is_chosen(seed: int, budget: float) -> None:
    options = _options(seed)
    everything = list(itertools.product(*options.values()))
    best = min(
        sum(each.seconds for each in choices) for choices in everything if sum(each.loss for each in choices) <= budget
    )
    chosen = next(each for each in list_undominated(options) if each.loss <= budget)
    assert chosen.seconds == pytest.approx(best)
    again = sum_options(options, chosen.codecs)
    assert (again.seconds, again.loss) == pytest.approx((chosen.seconds, chosen.loss))


def test_layers_keep_the_next_best() -> None:
    options = _options(0)
    single, three = list_undominated(options), list_undominated(options, layers=3)
    assert len(single) < len(three) < 125
    assert {frozenset(each.codecs.items()) for each in single} < {frozenset(each.codecs.items()) for each in three}
