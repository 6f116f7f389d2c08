"""Which calls are encoded, before their type and size are looked at."""

import pytest

from hpcbench.contract.decide import Call, undecidable, verdict
from hpcbench.contract.interpose import Groups
from hpcbench.contract.scheme import Rule, Scheme

HYBRID = Scheme(algorithm="encoded", default="zfp:16", rules=[Rule(dimension="DP", codec="zfp:8")])
ONLY_DP = Scheme(algorithm="encoded", default="none", rules=[Rule(dimension="DP", codec="int8:256")])
LOSSY = Groups(lossy=["parameters", "functional-gathers"])


@pytest.mark.parametrize(
    ("dimension", "call", "codec"),
    [
        ("DP", Call.ALL_REDUCE, "zfp:8"),
        ("DP", Call.REDUCE_SCATTER, "zfp:8"),
        ("TP", Call.ALL_REDUCE, "zfp:16"),
        ("TP", Call.ALL_GATHER, "zfp:16"),
        ("PP", Call.MESSAGE, "zfp:16"),
        ("EP", Call.ALL_TO_ALL, "zfp:16"),
        ("DP", Call.MESSAGE, None),  # a pipeline in the default group
        ("DP", Call.ALL_GATHER, None),  # parameters
        ("DP", Call.FUNCTIONAL_GATHER, None),
        ("TP", Call.FUNCTIONAL_GATHER, None),  # may be a state dict
        (None, Call.ALL_REDUCE, None),
        ("EXACT", Call.ALL_REDUCE, None),
    ],
)
def test_a_hybrid_scheme_by_dimension_and_call(dimension: str | None, call: Call, codec: str | None) -> None:
    _, treatment, why = verdict(HYBRID, Groups(), dimension, call)
    assert (treatment.codec if treatment else None) == codec
    assert bool(why) is (codec is None)


def test_gathers_of_parameters_are_lossy_where_that_was_asked_for() -> None:
    for call in (Call.ALL_GATHER, Call.FUNCTIONAL_GATHER):
        _, treatment, _ = verdict(HYBRID, LOSSY, "DP", call)
        assert treatment is not None and treatment.codec == "zfp:16"  # the rule is for DP, not for ZERO


def test_what_a_scheme_leaves_plain_is_pytorchs_own() -> None:
    assert verdict(ONLY_DP, Groups(), "TP", Call.ALL_REDUCE).why == "no codec"
    assert verdict(ONLY_DP, Groups(), "DP", Call.ALL_REDUCE).treatment is not None
    baseline = Scheme(algorithm="native", default="none")
    assert verdict(baseline, Groups(), "DP", Call.ALL_REDUCE).why == "no codec"


def test_the_control_without_codecs_runs_our_algorithm() -> None:
    _, treatment, _ = verdict(Scheme(algorithm="encoded", default="none"), Groups(), "DP", Call.ALL_REDUCE)
    assert treatment is not None and treatment.codec == "none"


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        (HYBRID, None),
        (ONLY_DP, None),
        (
            Scheme(algorithm="encoded", default="none", rules=[Rule(dimension="PP", phase="FORWARD", codec="bf16")]),
            "treat forward and backward pass differently",
        ),
        (Scheme(algorithm="homomorphic", default="int8:256"), "homomorphic"),
        (Scheme(algorithm="encoded", default="none", optimizer="onebit-adam"), "optimizer"),
        (Scheme(algorithm="native", default="none", environment={"X_COMPRESS": "1"}), "variables"),
    ],
)
def test_schemes_that_calls_cannot_follow_are_refused(scheme: Scheme, words: str | None) -> None:
    reason = undecidable(scheme)
    assert reason is None if words is None else words in str(reason)
