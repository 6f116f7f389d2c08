"""Tests that engine, `hpcbench run` and predictor interpret scheme rules identically, and reject the same rules."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.testing._internal.distributed.fake_pg import FakeStore

from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.links import DEFAULT
from hpcbench.comm.plan import Operation
from hpcbench.comm.policy import Policy
from hpcbench.comm.topology import Topology
from hpcbench.contract.call_treatment import CallKind, explain_undecidable
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme, Scheme
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase, Traffic, list_possible_traffic
from hpcbench.contract.training import Model
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.call import PredictedCall as Predicted
from hpcbench.predict.machine import make_cpu_machine
from hpcbench.predict.traffic import Costing
from hpcbench.predict.workload import Workload, make_train
from hpcbench.programs.account import Account
from hpcbench.programs.encoded import EncodedGroup
from hpcbench.programs.groups import GroupCalls
from hpcbench.train.precision import message_dtypes

ALGORITHMS = get_args(Scheme.model_fields["algorithm"].annotation)
CODECS = ("none", "mpc", "bf16", "int8:256", "int8:64:stochastic", "zfp:8")
CALLS = [
    ("DP", CallKind.ALL_REDUCE, ("DP", "BACKWARD", "GRAD")),
    ("TP", CallKind.ALL_REDUCE, ("TP", "FORWARD", "ACT")),
    ("CP", CallKind.ALL_GATHER, ("CP", "FORWARD", "ACT")),
    ("PP", CallKind.MESSAGE, ("PP", "FORWARD", "ACT")),
    ("EP", CallKind.ALL_TO_ALL, ("EP", "FORWARD", "ACT")),
]
"""Calls of a program, with the dimension of the group and the corresponding traffic of the engine."""
N, RANKS = 1 << 16, 4
TWO_NODES = Topology.regular(2, 2)


def rules() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.fixed_dictionaries(
        {"dimension": st.sampled_from(("DP", "ZERO", "TP", "CP", "PP", "EP", None)), "codec": st.sampled_from(CODECS)}
    )
    coded = st.fixed_dictionaries({"min_bytes": st.sampled_from((0, 1 << 19)), "between_nodes": st.booleans()})
    return st.builds(
        lambda rule, limits, feedback: (
            rule | (limits if rule["codec"] != "none" else {}) | {"feedback": feedback and rule["dimension"] == "DP"}
        ),
        plain,
        coded,
        st.booleans(),
    )


def schemes() -> st.SearchStrategy[dict[str, Any]]:
    algorithm, default = st.sampled_from(ALGORITHMS), st.sampled_from(CODECS)
    return st.fixed_dictionaries({"algorithm": algorithm, "default": default, "rules": st.lists(rules(), max_size=3)})


def accepted(stated: dict[str, Any]) -> NamedScheme:
    try:
        return NamedScheme.model_validate({"name": "mine", **stated})
    except ValidationError:
        assume(False)
        raise


@pytest.fixture(scope="module")
def group() -> Iterator[dist.ProcessGroup]:
    """Return the process group of one rank of a program. No other ranks exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield cast(dist.ProcessGroup, dist.group.WORLD)
    dist.destroy_process_group()


def of_program(group: dist.ProcessGroup, scheme: NamedScheme, dimension: str, call: CallKind, n: int) -> Channel | None:
    """Return the channel that `hpcbench run` uses to encode a call, or None if the call is left to PyTorch."""
    groups = Groups(min_bytes=0, lossy=["sums-outside-backward"])
    calls = GroupCalls(
        group, f"mesh_{dimension.lower()}", Interposition(scheme=scheme, groups=groups, out="."), Account()
    )
    carrier = EncodedGroup.__new__(EncodedGroup)  # the ranks of the group do not exist
    carrier.plans = cast(Any, SimpleNamespace(lay=lambda *_: object(), decide=list))
    calls.carriers._carriers["gloo"] = carrier
    return calls.choose(call, [torch.empty(n, dtype=torch.bfloat16)]).channel


def terms(channel: Channel) -> tuple[object, ...]:
    return channel.codec.name, channel.algorithm, channel.feedback, channel.between_nodes, channel.dtype


def engine(scheme: Scheme, traffic: Traffic, precision: str = "bf16") -> Channel:
    train = make_train(global_batch=8, micro_batch=1, seq_len=128, precision=precision)
    dimension, phase, kind, *axis = traffic
    return Policy(scheme, message_dtypes(train)).channel(Dimension(dimension), Phase(phase), MessageKind(kind), *axis)


@given(schemes())
def test_a_program_is_carried_out_like_the_engine(group: dist.ProcessGroup, stated: dict[str, Any]) -> None:
    scheme = accepted(stated)
    assume(scheme.algorithm != "native" and explain_undecidable(scheme) is None)
    control = scheme.algorithm != "auto" and all(rule.codec == "none" for rule in scheme.all_rules)
    for dimension, call, traffic in CALLS:
        ours = engine(scheme, traffic)
        theirs = of_program(group, scheme, dimension, call, N)
        messages = call in (CallKind.MESSAGE, CallKind.ALL_TO_ALL)
        left = ours.codec.name == "none" and not control
        if left or ours.min_bytes > 2 * N or (ours.between_nodes and messages):
            assert theirs is None
        else:
            assert theirs is not None and terms(theirs) == terms(ours)


@given(schemes(), st.sampled_from(("bf16", "fp32")))
@example({"algorithm": "doubling", "rules": [{"dimension": "DP", "codec": "int8:256", "feedback": True}]}, "fp32")
def test_the_predictor_plans_like_the_engine(stated: dict[str, Any], precision: str) -> None:
    scheme = accepted(stated)
    train = make_train(global_batch=8, micro_batch=1, seq_len=128, precision=precision)
    machine = make_cpu_machine("hosts", cores=2, memory_bytes=None, node_gbit=1.0)
    workload = Workload(Model(layers=2, hidden=256, heads=8), train, Layout(dp=RANKS), 2, scheme)
    costing = Costing(workload, machine)
    for traffic in [*list_possible_traffic(), ("EXACT", "STEP", "OPTIM")]:
        ours, treatment = engine(scheme, traffic, precision), costing.treatment(traffic)
        assert treatment.refusal is None
        assert (treatment.codec, treatment.algorithm, treatment.feedback) == (
            ours.codec.name,
            ours.algorithm,
            ours.feedback,
        )
        assert (treatment.min_bytes, treatment.between_nodes) == (ours.min_bytes, ours.between_nodes)
    ours = engine(scheme, ("DP", "BACKWARD", "GRAD"), precision)
    values = np.broadcast_to(np.zeros(1, np.float32), N)
    planned = Choice(0, TWO_NODES, DEFAULT).plan(Operation.ALL_REDUCE, values, ours, feedback=ours.feedback)
    call = Predicted(("DP", "BACKWARD", "GRAD"), "all-reduce", N, WIDTHS[precision], "dp")
    foreseen = None if ours.algorithm is Algorithm.NATIVE else costing._choose_plan(call, workload.place_group("dp"))
    assert (foreseen and (foreseen.algorithm, foreseen.codec.name)) == (
        planned and (planned.algorithm, planned.codec.name)
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"dimension": "DP", "codec": "zfp:8"}, r"rule 1 \(DP zfp:8\): algorithm homomorphic sums 8-bit integers"),
        (
            {"dimension": "TP", "codec": "int8:256:stochastic"},
            "rounded to nearest: use codec int8 instead of int8:256:stoch",
        ),
        ({"kind": "GRAD", "codec": "bf16"}, "or algorithm encoded"),
        ({"dimension": "PP", "phase": "FORWARD", "codec": "zfp:8"}, None),
        ({"dimension": "ZERO", "codec": "bf16"}, None),
        ({"dimension": "DP", "codec": "zfp:8", "between_nodes": True}, None),
        ({"dimension": "DP", "codec": "none"}, None),
    ],
)
def test_homomorphic_sums_of_another_codec_are_refused_by_rule(rule: dict[str, Any], message: str | None) -> None:
    stated = {"algorithm": "homomorphic", "default": "int8:256", "rules": [rule]}
    if message is None:
        assert Scheme.model_validate(stated)
    else:
        with pytest.raises(ValidationError, match=message):
            Scheme.model_validate(stated)
