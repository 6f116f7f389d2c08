"""Which rules of a scheme carry nothing in a run, and which contradict each other."""

from hpcbench.codecs import spec
from hpcbench.contract.scheme import Scheme, Treatment
from hpcbench.contract.section import Precision
from hpcbench.contract.traffic import (
    Algorithm,
    Traffic,
    TrafficSettings,
    find_content,
    list_live_traffic,
    list_possible_traffic,
)

HOMOMORPHIC_RANKS = 32767 // 127
"""The largest number of ranks whose 8-bit integers, each from -127 to 127, have sums that fit 16 bits."""


def resolve_treatment(scheme: Scheme, traffic: Traffic, setting: TrafficSettings) -> Treatment:
    """Return how a scheme carries out a kind of traffic in a run with this setting."""
    return scheme.treatment(traffic, half=_travels_as(traffic, setting) in ("bf16", "fp16"))


def resolve_treatments(scheme: Scheme, setting: TrafficSettings) -> dict[Traffic, Treatment]:
    """Return how a scheme carries out each kind of traffic of a run."""
    return {traffic: resolve_treatment(scheme, traffic, setting) for traffic in list_live_traffic(setting)}


def list_idle_rules(scheme: Scheme, setting: TrafficSettings) -> list[str]:
    """A line for each rule that applies to no traffic of the run, and for each whose feedback has no error to keep."""
    rules, resolved = scheme.all_rules, resolve_treatments(scheme, setting)
    used = {treatment.rule for treatment in resolved.values()}
    feeding = {treatment.rule for treatment in resolved.values() if treatment.feedback}
    exact = [
        f"{scheme.name_rule(k)} has no error to feed back: the codec is lossless, and messages are not rounded to 16 "
        "bits"
        for k in sorted(used - feeding)
        if rules[k].feedback
    ]
    return exact + [
        f"{scheme.name_rule(k)} carries nothing"
        + (
            ": later rules apply to all that it matches"
            if any(rules[k].matches(traffic) for traffic in resolved)
            else " in this layout"
        )
        for k in range(1, len(rules))
        if k not in used
    ]


def find_fp64_obstacle(scheme: Scheme, setting: TrafficSettings) -> tuple[int, str] | None:
    """The first rule that cannot take fp64 messages of the run: its index, and why with the remedy; None if all can."""
    for traffic, treatment in resolve_treatments(scheme, setting).items():
        if _travels_as(traffic, setting) != "fp64":
            continue
        remedy = "set train.comm_precision to fp32" if find_content(traffic) else "train with another precision"
        if spec.parse(treatment.codec).takes_fp64 is False:
            return treatment.rule, f"cannot encode: {remedy}, or use a lossless codec (none, mpc, xpk)"
        if treatment.feedback:
            return treatment.rule, f"cannot correct, because errors are kept in fp32: {remedy}, or leave feedback out"
    return None


def _travels_as(traffic: Traffic, setting: TrafficSettings) -> Precision:
    """Return the number format in which values travel. That of momenta is fixed."""
    content = find_content(traffic)
    return setting.train.message_formats[content] if content else setting.train.sum_format


def find_missed_stage(scheme: Scheme, zero: int) -> int | None:
    """Index of a rule that encodes a gather which this ZeRO stage lacks, if no rule encodes one that it has."""
    phases = {0: (), 3: ("FORWARD", "BACKWARD")}.get(zero, ("STEP",))
    of_weights = [
        k
        for k, rule in enumerate(scheme.all_rules)
        if rule.codec != "none"
        and {triple[0] for triple in list_possible_traffic() if rule.matches(triple)} == {"ZERO"}
    ]
    if any(scheme.all_rules[k].phase in (None, *phases) for k in of_weights):
        return None
    return of_weights[0] if of_weights else None


def explain_wrong_gradients(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Return why the backward pass would see other values than the forward pass; None if both see the same.

    Autograd takes the codec as the identity. So a gradient is right only if the backward pass uses the values that the
    forward pass decoded. ZeRO-3 gathers weights for each pass, and recomputation sends activations again.
    """
    sent = resolve_treatments(scheme, setting)
    if ("CP", "FORWARD", "ACT") in sent and (why := _other_keys(scheme, setting)):
        return why
    if ("ZERO", "FORWARD", "PARAM") in sent:
        there, back = sent["ZERO", "FORWARD", "PARAM"], sent["ZERO", "BACKWARD", "PARAM"]
        if there.is_random or back.is_random:
            name = scheme.name_rule((there if there.is_random else back).rule)
            return (
                f"{name} rounds gathered weights at random, so that forward and backward pass compute with different "
                "ones: use a codec that does not, for ZERO"
            )
        if setting.train.node_copy:
            if not (back.is_lossless or back.between_nodes):
                return (
                    f"{scheme.name_rule(back.rule)} changes the weights of the node's copy once more, so that forward "
                    "and backward pass compute with different ones: give ZERO BACKWARD a lossless codec, such as none"
                )
        elif not (there.is_lossless and back.is_lossless) and there != back:
            return (
                "forward pass and backward pass compute with different weights, decoded by "
                f"{scheme.name_rule(there.rule)} and by {scheme.name_rule(back.rule)}: use one rule for both, or "
                "node_copy: true"
            )
    streamed = setting.layout.tensor in ("2d", "2.5d")
    if streamed or setting.train.recompute not in ("none", "selective"):
        for traffic, treatment in sent.items():
            if traffic[0] in ("TP", "SP", "EP") and traffic[1] == "FORWARD" and treatment.is_random:
                name = scheme.name_rule(treatment.rule)
                if streamed:
                    return (
                        f"{name} rounds at random, and tensor {setting.layout.tensor} sends activations "
                        "and weights again for the backward pass, which would be others: use a codec that does not"
                    )
                return (
                    f"{name} rounds at random, so that recomputed activations are not those of the "
                    "forward pass: use a codec that does not, or recompute: none"
                )
    return None


def _other_keys(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Why the backward pass of attention would see other keys and values than the forward pass; None if it does not.

    A ring sends them once more for the backward pass. Ulysses keeps what it has got, unless attention is recomputed.
    """
    treatment = scheme.treatment(("CP", "FORWARD", "ACT"))
    if not treatment.is_random:
        return None
    name = scheme.name_rule(treatment.rule)
    if setting.layout.context != "ulysses":
        return (
            f"{name} rounds at random, and context {setting.layout.context} sends keys and values again "
            "for the backward pass, which would be others: use a codec that does not, or context ulysses"
        )
    if setting.train.recompute != "none":
        return (
            f"{name} rounds at random, so that recomputed attention is not that of the forward pass: use a "
            "codec that does not, or recompute: none"
        )
    return None


def find_gpu_obstacle(scheme: Scheme) -> tuple[int | None, str] | None:
    """The part of a scheme that only the CPU can run: the index of its rule (None for the algorithm), and why."""
    if scheme.algorithm == "homomorphic":
        return None, "homomorphic sums are made in host memory: use two-shot, or device cpu"
    for k, rule in enumerate(scheme.all_rules):
        if not spec.parse(rule.codec).on_gpu:
            return k, f"codec {rule.codec} has no kernels for a GPU: use another, or device cpu"
    return None


def explain_sum_overflow(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Return why homomorphic sums would overflow in a group of the run; None if they fit."""
    for traffic, treatment in resolve_treatments(scheme, setting).items():
        ranks = {"DP": setting.layout.replicas, "TP": setting.layout.depth if traffic[3:] else setting.layout.tp}
        scattered = traffic[0] == "DP" and setting.train.zero > 0
        summed = treatment.algorithm is Algorithm.HOMOMORPHIC and not (scattered or treatment.feedback)
        if summed and ranks.get(traffic[0], 1) > HOMOMORPHIC_RANKS:
            return (
                f"homomorphic sums of {ranks[traffic[0]]} ranks of {traffic[0]} do not fit 16 bits: use another "
                f"algorithm, or at most {HOMOMORPHIC_RANKS} ranks"
            )
    return None


def explain_drifting_copies(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Return why the copies of a tied weight on the first and last stage would differ in time; None if they stay equal.

    Each call of a codec draws its own random numbers, and the two stages make different calls.
    """
    if setting.tied and setting.layout.pp > 1:
        for traffic, treatment in resolve_treatments(scheme, setting).items():
            if traffic in (("ZERO", "STEP", "PARAM"), ("DP", "STEP", "OPTIM")) and treatment.is_random:
                return (
                    f"{scheme.name_rule(treatment.rule)} rounds at random, so that the copies of the tied weight on "
                    "the first and the last stage would part: use a codec that does not, or a model whose weights are "
                    "not tied"
                )
    return None
