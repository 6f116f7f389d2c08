"""Tests of rules that apply only in some steps: which rule covers a step, and when treatments change."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from small_runs import TRAIN

from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.rules import list_treatments, resolve_treatment
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings

GRADIENTS = ("DP", "BACKWARD", "GRAD")
WARM = Scheme(
    rules=[
        Rule(dimension="DP", codec="int4", feedback=True),
        Rule(dimension="DP", codec="int8:256", until_step=5),
        Rule(codec="none", until_step=2),
    ]
)

limits = st.tuples(st.integers(1, 9), st.none() | st.integers(0, 9)).map(
    lambda pair: {"from_step": pair[0], **({} if pair[1] is None else {"until_step": pair[0] + pair[1]})}
)
rules = st.builds(
    lambda codec, of, steps: Rule(codec=codec, dimension=of, **steps),
    st.sampled_from(("none", "int8:256", "mpc", "sign:1024")),
    st.sampled_from((None, "DP", "TP")),
    limits,
)


@given(st.lists(rules, max_size=5))
def test_a_schedule_agrees_with_the_treatment_of_each_step(drawn: list[Rule]) -> None:
    scheme = Scheme(algorithm="two-shot", rules=drawn)
    changes = scheme.schedule(GRADIENTS)
    for step in range(1, 25):
        applies = [rule for rule in scheme.all_rules if rule.matches(GRADIENTS) and rule.covers(step)]
        assert scheme.treatment(GRADIENTS, step=step).codec == applies[-1].codec
        assert scheme.treatment(GRADIENTS, step=step) == changes[max(first for first in changes if first <= step)]
    assert scheme.treatment(GRADIENTS) == scheme.treatment(GRADIENTS, step=25)
    treatments = [changes[first] for first in sorted(changes)]
    assert all(before != after for before, after in pairwise(treatments))


def test_a_warm_up_and_two_codecs() -> None:
    assert WARM.change_steps == [1, 3, 6]
    assert {first: each.codec for first, each in WARM.schedule(GRADIENTS).items()} == {
        1: "none",
        3: "int8:256",
        6: "int4:32",
    }


def test_only_the_steps_of_the_run_count() -> None:
    short, run = TrafficSettings(Layout(dp=2), TRAIN), TrafficSettings(Layout(dp=2), TRAIN.changed(steps=6))
    codecs = [[each.codec for traffic, each in list_treatments(WARM, s) if traffic == GRADIENTS] for s in (short, run)]
    assert codecs == [["none", "int8:256"], ["none", "int8:256", "int4:32"]]
    assert [resolve_treatment(WARM, GRADIENTS, s).codec for s in (short, run)] == ["int8:256", "int4:32"]
    assert resolve_treatment(WARM, GRADIENTS, run, step=1).codec == "none"
