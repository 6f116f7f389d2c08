"""Whether a call is encoded, and by which rule of the scheme.

A decision follows from group, operation, type and size alone. Those are the same on all ranks of the call, so that all
ranks decide equally. Whether a call belongs to the forward or to the backward pass is not among them: gradients of a
pipeline look like activations. So both must have the same rule.
"""

from enum import Enum
from typing import NamedTuple

from hpcbench.contract.interpose import Groups
from hpcbench.contract.scheme import Scheme, Treatment
from hpcbench.contract.traffic import Traffic


class CallKind(str, Enum):
    """What a call does with values of a group."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    FUNCTIONAL_GATHER = "functional gather"
    ALL_TO_ALL = "all-to-all"
    MESSAGE = "point to point"
    __hash__ = str.__hash__  # Enum's own is Python, which each call of a program would pay


_ACTIVATIONS = ("FORWARD", "ACT"), ("BACKWARD", "GRAD")


class CallTreatment(NamedTuple):
    """How a call is encoded, or the reason why it is not."""

    traffic: Traffic | None
    treatment: Treatment | None
    why: str


def list_traffic(dimension: str, call: CallKind) -> list[Traffic]:
    """Return the kinds of traffic that a call may be."""
    if dimension == "DP":
        if call in (CallKind.ALL_GATHER, CallKind.FUNCTIONAL_GATHER):
            return [("ZERO", "FORWARD", "PARAM"), ("ZERO", "BACKWARD", "PARAM")]
        return [("DP", "BACKWARD", "GRAD")]
    if dimension == "TP" and call is not CallKind.ALL_REDUCE:
        dimension = "SP"  # what sequence parallelism makes of an all-reduce
    return [(dimension, *words) for words in _ACTIVATIONS]


def resolve_call(scheme: Scheme, groups: Groups, dimension: str | None, call: CallKind) -> CallTreatment:
    """Return the verdict on all calls of an operation in groups of a dimension, before type and size are looked at."""
    if dimension is None:
        return CallTreatment(None, None, "unknown group")
    if dimension == "EXACT":
        return CallTreatment(None, None, "exact group")
    if scheme.algorithm == "native":
        return CallTreatment(None, None, "no codec")
    if call is CallKind.FUNCTIONAL_GATHER and "functional-gathers" not in groups.lossy:
        return CallTreatment(None, None, "functional gather")
    if call is CallKind.ALL_GATHER and dimension == "DP" and "parameters" not in groups.lossy:
        return CallTreatment(None, None, "parameters")
    if dimension == "DP" and call in (CallKind.MESSAGE, CallKind.ALL_TO_ALL):
        return CallTreatment(None, None, "not of data parallelism")  # a pipeline in the default group, for example
    found, *_ = list_traffic(dimension, call)
    treatment = scheme.treatment(found)
    # a scheme without any codec is a control: it runs our algorithms, so that their cost is told from a codec's
    control = scheme.algorithm != "auto" and all(rule.codec == "none" for rule in scheme.all_rules)
    if treatment.codec == "none" and not control:
        return CallTreatment(None, None, "no codec")
    return CallTreatment(found, treatment, "")


def explain_undecidable(scheme: Scheme) -> str | None:
    """Return why a scheme cannot be applied to calls that do not tell forward from backward; None if it can."""
    if scheme.optimizer is not None:
        return "it brings its own optimizer, and a program has one: use another scheme"
    if scheme.algorithm == "homomorphic":
        return "homomorphic sums are made by the MPI library: use algorithm encoded"
    for dimension in ("DP", "TP", "PP", "CP", "EP"):
        for call in CallKind:
            treatments = {scheme.treatment(traffic, half=True) for traffic in list_traffic(dimension, call)}
            if len(treatments) > 1:
                first, second = sorted(treatment.rule for treatment in treatments)
                return (
                    f"{scheme.name_rule(first)} and {scheme.name_rule(second)} treat forward and backward pass "
                    "differently, and a program's calls do not tell which they belong to: give both the same codec"
                )
    return None
