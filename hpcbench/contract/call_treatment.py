"""Selection of the scheme's rule for a program's collective call.

The decision depends only on group, operation, dtype and size. These values are identical on all ranks of the call, so
all ranks make the same decision. It is unknown whether a call belongs to the forward or the backward pass, because
pipeline gradients look like activations. Therefore the same rule must apply to both passes.
"""

from enum import Enum
from typing import NamedTuple

from hpcbench.contract.interpose import Groups
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.treatment import Treatment


class CallKind(str, Enum):
    """The operation of a call."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    FUNCTIONAL_GATHER = "functional gather"
    ALL_TO_ALL = "all-to-all"
    MESSAGE = "point to point"
    __hash__ = str.__hash__  # Enum.__hash__ is Python code, too slow for each call of a program


_ACTIVATIONS = ("FORWARD", "ACT"), ("BACKWARD", "GRAD")


class CallTreatment(NamedTuple):
    """The treatment of an encoded call, or the reason why the call is not encoded."""

    traffic: Traffic | None
    treatment: Treatment | None
    why: str


def list_traffic(dimension: str, call: CallKind) -> list[Traffic]:
    """Return the kinds of traffic that a call may belong to."""
    if dimension == "DP":
        if call in (CallKind.ALL_GATHER, CallKind.FUNCTIONAL_GATHER):
            return [("ZERO", "FORWARD", "PARAM"), ("ZERO", "BACKWARD", "PARAM")]
        return [("DP", "BACKWARD", "GRAD")]
    if dimension == "TP" and call is not CallKind.ALL_REDUCE:
        dimension = "SP"  # sequence parallelism splits an all-reduce into these operations
    return [(dimension, *phase_and_kind) for phase_and_kind in _ACTIVATIONS]


def resolve_call(scheme: Scheme, groups: Groups, dimension: str | None, call: CallKind) -> CallTreatment:
    """Resolve how an operation is treated in groups of one parallel dimension. Dtype and size are checked later."""
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
    traffic, *_ = list_traffic(dimension, call)
    treatment = scheme.treatment(traffic)
    # A scheme without a codec is a control. It runs our algorithms, which separates their cost from a codec's cost.
    control = scheme.algorithm != "auto" and all(rule.codec == "none" for rule in scheme.all_rules)
    if treatment.codec == "none" and not control:
        return CallTreatment(None, None, "no codec")
    return CallTreatment(traffic, treatment, "")


def explain_undecidable(scheme: Scheme) -> str | None:
    """Return why a scheme cannot be applied to a program, or None if it can.

    The pass and the step of a program's calls are unknown.
    """
    if scheme.optimizer is not None:
        return "it sets an optimizer, but the program has its own optimizer: use another scheme"
    if scheme.algorithm == "homomorphic":
        return "algorithm homomorphic needs sums by the MPI library: use algorithm encoded"
    for k, rule in enumerate(scheme.all_rules):
        if reason := _explain_unseen(rule):
            return f"{scheme.name_rule(k)} {reason}"
    for dimension in ("DP", "TP", "PP", "CP", "EP"):
        for call in CallKind:
            treatments = {scheme.treatment(traffic, half=True) for traffic in list_traffic(dimension, call)}
            if len(treatments) > 1:
                first, second = sorted(treatment.rule for treatment in treatments)
                return (
                    f"{scheme.name_rule(first)} and {scheme.name_rule(second)} treat forward and backward pass "
                    "differently, but a program's calls do not show their pass: use the same codec for both passes"
                )
    return None


def _explain_unseen(rule: Rule) -> str | None:
    """Return what a rule needs that a program's calls do not show, and the remedy, or None if they show everything."""
    if rule.from_step > 1 or rule.until_step is not None:
        return "has from_step or until_step, but a program's calls do not show their step: leave them out"
    if rule.feedback_average or rule.feedback_reset:
        return (
            "averages or resets errors, but a program's calls do not show their step: leave feedback_average and "
            "feedback_reset out"
        )
    if rule.codec.endswith(":correlated"):
        return "has correlated rounding, which needs sums of hpcbench's own training: use :stochastic"
    if rule.sample_changes:
        return "has sample_changes, but a program's calls do not show their samples: leave sample_changes out"
    if rule.differences:
        return "has differences, but a program's calls do not show which weights they gather: leave differences out"
    if rule.low_rank:
        return (
            "has low_rank, but a program's calls do not show its matrices: leave low_rank out, or use PyTorch's "
            "PowerSGD hook (scheme ddp-hook)"
        )
    if rule.mixed_bits:
        return "has mixed_bits, but the gradients of a program are reduced as whole messages: leave mixed_bits out"
    return None
