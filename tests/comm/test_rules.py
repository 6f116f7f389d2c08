"""Tests of a run's traffic, the rules that match it, and values that would differ between the two passes."""

from typing import Any

import numpy as np
import pytest

from hpcbench.codecs import spec
from hpcbench.codecs.registry import get_codec
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.rules import explain_drifting_copies, explain_wrong_gradients, find_missed_stage, list_idle_rules
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings, list_possible_traffic
from hpcbench.contract.training import Train


def setting(*, tied: bool = False, **change: Any) -> TrafficSettings:
    """Return the settings of a run with all kinds of traffic and two ranks per dimension, modified by `change`."""
    sizes = {name: change.pop(name, 2) for name in ("dp", "tp", "pp")}
    return TrafficSettings(Layout(**sizes), Train(steps=100, global_batch=2, **change), tied)


def scheme(*listed: Any) -> Scheme:
    return Scheme(rules=[Rule(**rule) for rule in listed])


@pytest.mark.parametrize(
    ("listed", "change", "messages"),
    [
        ([{"dimension": "DP", "codec": "zfp:8"}, {"dimension": "PP", "codec": "zfp:8"}], {}, []),
        (
            [{"dimension": "DP", "codec": "zfp:8"}, {"dimension": "PP", "codec": "zfp:8"}],
            {"pp": 1},
            ["rule 2 (PP zfp:8) applies to no message in this layout"],
        ),
        (
            [{"dimension": "ZERO", "codec": "mpc"}],
            {"zero": 0},
            ["rule 1 (ZERO mpc) applies to no message in this layout"],
        ),
        ([{"dimension": "TP", "codec": "mpc"}], {"sequence_parallel": True}, []),
        (
            [{"dimension": "SP", "phase": "FORWARD", "codec": "mpc"}],
            {},
            ["rule 1 (SP FORWARD mpc) applies to no message in this layout"],
        ),
        (
            [{"dimension": "DP", "codec": "mpc"}, {"kind": "GRAD", "codec": "xpk"}],
            {},
            ["rule 1 (DP mpc) applies to no message: later rules apply to all traffic that this rule matches"],
        ),
        ([{"kind": "OPTIM", "codec": "xpk"}], {"optimizer": "onebit-adam", "zero": 0}, []),
        ([{"codec": "xpk"}], {"dp": 1, "tp": 1, "pp": 1}, ["rule 1 (xpk) applies to no message in this layout"]),
    ],
)
def test_rules_that_carry_nothing_are_named(listed: Any, change: Any, messages: list[str]) -> None:
    assert list_idle_rules(scheme(*listed), setting(**change)) == messages


@pytest.mark.parametrize(
    ("listed", "stages"),
    [
        ([{"dimension": "ZERO", "phase": "FORWARD", "codec": "mpc"}], {0, 1, 2}),
        ([{"phase": "BACKWARD", "kind": "PARAM", "codec": "mpc"}], {0, 1, 2}),
        ([{"dimension": "ZERO", "phase": "STEP", "codec": "mpc"}], {0, 3}),
        ([{"dimension": "ZERO", "phase": p, "codec": "mpc"} for p in ("STEP", "FORWARD")], {0}),
        ([{"dimension": "ZERO", "codec": "mpc"}], set()),
        ([{"phase": "FORWARD", "codec": "mpc"}], set()),
        ([], set()),
    ],
)
def test_rules_for_weights_know_the_stage(listed: Any, stages: set[int]) -> None:
    assert {zero for zero in range(4) if find_missed_stage(scheme(*listed), zero) is not None} == stages


FORWARD = {"dimension": "ZERO", "phase": "FORWARD"}
BACKWARD = {"dimension": "ZERO", "phase": "BACKWARD"}
RANDOM = "int8:256:stochastic"


@pytest.mark.parametrize(
    ("listed", "change", "reason"),
    [
        (
            [{**FORWARD, "codec": "int8:256"}],
            {},
            "decoded with rule 1 (ZERO FORWARD int8:256) and the default (none)",
        ),
        ([{**FORWARD, "codec": "int8:256"}], {"dp": 1}, None),
        ([{**FORWARD, "codec": "int8:256"}], {"node_copy": True}, None),
        ([{**FORWARD, "codec": "mpc"}], {}, None),
        ([{"dimension": "ZERO", "codec": "int8:256"}], {}, None),
        ([{"dimension": "ZERO", "codec": "int8:256"}, {**BACKWARD, "codec": "int8:256", "min_bytes": 9}], {}, "rule 2"),
        ([{"dimension": "ZERO", "codec": RANDOM}], {}, "rule 1 (ZERO int8:256:stochastic) rounds gathered weights at"),
        ([{**FORWARD, "codec": RANDOM}], {"node_copy": True}, "rounds gathered weights at random"),
        ([{"dimension": "ZERO", "codec": "zfp:8"}], {"node_copy": True}, "the node's copy a second time"),
        ([{"dimension": "ZERO", "codec": "zfp:8", "between_nodes": True}], {"node_copy": True}, None),
        (
            [{"dimension": "TP", "codec": RANDOM}],
            {"recompute": "full"},
            "recomputed activations differ from",
        ),
        ([{"dimension": "TP", "codec": RANDOM}], {"recompute": 2, "sequence_parallel": True}, "or recompute: none"),
        ([{"dimension": "TP", "codec": RANDOM}], {"recompute": "selective"}, None),
        ([{"dimension": "TP", "codec": RANDOM}], {"recompute": "full", "tp": 1}, None),
        ([{"dimension": "TP", "phase": "BACKWARD", "codec": RANDOM}], {"recompute": "full"}, None),
        ([{"dimension": "TP", "codec": "int8:256"}], {"recompute": "full"}, None),
    ],
)
def test_values_that_forward_and_backward_would_see_differently_are_refused(
    listed: Any, change: Any, reason: str | None
) -> None:
    message = explain_wrong_gradients(scheme(*listed), setting(**{"zero": 3, **change}))
    assert message is None if reason is None else message is not None and reason in message
    if reason and "recompute" not in change:
        assert explain_wrong_gradients(scheme(*listed), setting(**{**change, "zero": 2, "node_copy": False})) is None


@pytest.mark.parametrize(
    ("rule", "change", "parts"),
    [
        ({"dimension": "ZERO", "codec": "int8:256:stochastic"}, {}, True),
        ({"dimension": "ZERO", "codec": "int8:256"}, {}, False),
        ({"dimension": "ZERO", "codec": "int8:256:stochastic"}, {"tied": False}, False),
        ({"dimension": "ZERO", "codec": "int8:256:stochastic"}, {"pp": 1}, False),
        ({"dimension": "DP", "codec": "int8:256:stochastic"}, {"zero": 0}, False),
        ({"dimension": "DP", "codec": "int8:256:stochastic"}, {"zero": 0, "optimizer": "onebit-adam"}, True),
    ],
)
def test_copies_of_a_tied_weight_that_would_part_are_refused(rule: Any, change: Any, parts: bool) -> None:
    message = explain_drifting_copies(scheme(rule), setting(**{"tied": True, **change}))
    assert (message is not None and "rule 1 (" in message and "without random rounding" in message) is parts
    assert (message is None) is not parts


def test_only_one_bit_adam_sends_optimizer_states() -> None:
    assert set(list_possible_traffic("onebit-adam")) - set(list_possible_traffic("adamw")) == {("DP", "STEP", "OPTIM")}
    assert set(list_possible_traffic()) == set(list_possible_traffic("onebit-adam"))


NAMES = [
    *("none", "zfp:8", "mpc", "xpk", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8", "int4", "sign", "topk:0.1"),
    *("threshold:0.1", "rowsparse:4", "2:4", "int3:32/256", "int2:32/256", "mxfp8", "mxfp6", "mxfp4", "nvfp4"),
]


@pytest.mark.parametrize("name", NAMES)
def test_dimensions_report_which_codecs_take_fp64(name: str) -> None:
    assert {spec.parse(each).family for each in NAMES} == set(spec.FAMILIES)
    codec = get_codec(name)
    if spec.parse(name).takes_fp64:
        assert codec.wire_bytes(16, np.dtype(np.float64)) > 0
    else:
        with pytest.raises(TypeError):
            codec.wire_bytes(16, np.dtype(np.float64))
