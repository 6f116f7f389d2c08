"""Tests that the last matching rule of a scheme applies."""

import pytest

from hpcbench.comm.policy import Policy
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase


def hybrid() -> Policy:
    scheme = Scheme(
        algorithm="two-shot",
        default="mpc",
        rules=[
            Rule(codec="zfp:16", dimension="TP"),
            Rule(codec="zfp:24", dimension="TP", phase="BACKWARD"),
            Rule(codec="zfp:8", kind="GRAD", dimension="DP"),
        ],
    )
    return Policy(scheme)


@pytest.mark.parametrize(
    ("traffic", "codec"),
    [
        ((Dimension.PP, Phase.FORWARD, MessageKind.ACT), "mpc"),
        ((Dimension.TP, Phase.FORWARD, MessageKind.ACT), "zfp:16"),
        ((Dimension.TP, Phase.BACKWARD, MessageKind.GRAD), "zfp:24"),
        ((Dimension.DP, Phase.BACKWARD, MessageKind.GRAD), "zfp:8"),
        ((Dimension.ZERO, Phase.STEP, MessageKind.PARAM), "mpc"),
        ((Dimension.EXACT, Phase.STEP, MessageKind.OPTIM), "none"),
    ],
)
def test_last_matching_rule_applies(traffic, codec):
    assert hybrid().channel(*traffic).codec.name == codec


def test_a_channel_is_one_object_and_counts_for_itself():
    policy = hybrid()
    forward = policy.channel(Dimension.TP, Phase.FORWARD, MessageKind.ACT)
    forward.counters.message_bytes += 100
    assert policy.channel(Dimension.TP, Phase.FORWARD, MessageKind.ACT) is forward
    assert policy.channel(Dimension.TP, Phase.BACKWARD, MessageKind.GRAD).counters.message_bytes == 0


def test_exact_traffic_is_never_encoded():
    policy = Policy(Scheme(algorithm="two-shot", default="zfp:8"))
    assert policy.exact.codec.name == "none"
    assert policy.exact.algorithm is Algorithm.NATIVE


def test_native_collectives_refuse_a_codec():
    policy = Policy(Scheme.model_construct(algorithm="native", default="zfp:8"))
    with pytest.raises(ValueError, match="use algorithm encoded"):
        policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
