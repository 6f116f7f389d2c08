"""Tests of the selection of calls to encode, before their type and size are checked."""

import pytest

from hpcbench.contract.call_treatment import CallKind, explain_undecidable, resolve_call
from hpcbench.contract.interpose import Groups
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme

HYBRID = Scheme(algorithm="encoded", default="zfp:16", rules=[Rule(dimension="DP", codec="zfp:8")])
ONLY_DP = Scheme(algorithm="encoded", default="none", rules=[Rule(dimension="DP", codec="int8:256")])
LOSSY = Groups(lossy=["parameters", "functional-gathers"])


@pytest.mark.parametrize(
    ("dimension", "call", "codec"),
    [
        ("DP", CallKind.ALL_REDUCE, "zfp:8"),
        ("DP", CallKind.REDUCE_SCATTER, "zfp:8"),
        ("TP", CallKind.ALL_REDUCE, "zfp:16"),
        ("TP", CallKind.ALL_GATHER, "zfp:16"),
        ("PP", CallKind.MESSAGE, "zfp:16"),
        ("EP", CallKind.ALL_TO_ALL, "zfp:16"),
        ("DP", CallKind.MESSAGE, None),  # a pipeline in the default group
        ("DP", CallKind.ALL_GATHER, None),  # parameters
        ("DP", CallKind.FUNCTIONAL_GATHER, None),
        ("TP", CallKind.FUNCTIONAL_GATHER, None),  # may be a state dict
        (None, CallKind.ALL_REDUCE, None),
        ("EXACT", CallKind.ALL_REDUCE, None),
    ],
)
def test_a_hybrid_scheme_by_dimension_and_call(dimension: str | None, call: CallKind, codec: str | None) -> None:
    _, treatment, why = resolve_call(HYBRID, Groups(), dimension, call)
    assert (treatment.codec if treatment else None) == codec
    assert bool(why) is (codec is None)


def test_gathers_of_parameters_are_lossy_where_that_was_asked_for() -> None:
    for call in (CallKind.ALL_GATHER, CallKind.FUNCTIONAL_GATHER):
        _, treatment, _ = resolve_call(HYBRID, LOSSY, "DP", call)
        assert treatment is not None and treatment.codec == "zfp:16"  # the rule is for DP, not for ZERO


def test_what_a_scheme_leaves_plain_is_pytorchs_own() -> None:
    assert resolve_call(ONLY_DP, Groups(), "TP", CallKind.ALL_REDUCE).why == "no codec"
    assert resolve_call(ONLY_DP, Groups(), "DP", CallKind.ALL_REDUCE).treatment is not None
    baseline = Scheme(algorithm="native", default="none")
    assert resolve_call(baseline, Groups(), "DP", CallKind.ALL_REDUCE).why == "no codec"


def test_the_control_without_codecs_runs_our_algorithm() -> None:
    _, treatment, _ = resolve_call(Scheme(algorithm="encoded", default="none"), Groups(), "DP", CallKind.ALL_REDUCE)
    assert treatment is not None and treatment.codec == "none"


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (HYBRID, None),
        (ONLY_DP, None),
        (
            Scheme(algorithm="encoded", default="none", rules=[Rule(dimension="PP", phase="FORWARD", codec="bf16")]),
            "treat forward and backward pass differently",
        ),
        (Scheme(rules=[Rule(codec="bf16", from_step=2)]), "rule 1 (bf16) has from_step or until_step, but a program"),
        (Scheme(rules=[Rule(codec="bf16", until_step=2)]), "leave them out"),
        (Scheme(rules=[Rule(dimension="DP", codec="int4", feedback=True, feedback_average=0.8)]), "averages or resets"),
        (
            Scheme(rules=[Rule(dimension="PP", phase="FORWARD", codec="int4", sample_changes=4)]),
            "has sample_changes, but",
        ),
        (
            Scheme(rules=[Rule(dimension="DP", codec="int4:32/256", mixed_bits=5)]),
            "has mixed_bits, but the gradients of",
        ),
        (Scheme(rules=[Rule(dimension="ZERO", codec="int4", differences=True)]), "has differences, but a program's"),
        (Scheme(rules=[Rule(dimension="DP", codec="none", low_rank=4)]), "has low_rank, but a program's calls do not"),
        (Scheme(algorithm="encoded", default="int4:32:correlated"), "has correlated rounding, which needs sums"),
        (Scheme(algorithm="homomorphic", default="int8:256"), "homomorphic"),
        (Scheme(algorithm="encoded", default="none", optimizer="onebit-adam"), "optimizer"),
    ],
)
def test_schemes_that_calls_cannot_follow_are_refused(scheme: Scheme, message: str | None) -> None:
    reason = explain_undecidable(scheme)
    assert reason is None if message is None else message in str(reason)
