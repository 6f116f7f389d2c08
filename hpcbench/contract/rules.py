"""Checks of a scheme's rules for a run: rules that have no effect, and rules that contradict each other or the run."""

from hpcbench.codecs import spec
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Precision
from hpcbench.contract.traffic import (
    Algorithm,
    Traffic,
    TrafficSettings,
    find_content,
    list_live_traffic,
    list_possible_traffic,
)
from hpcbench.contract.training import UNFLUSHED, Train
from hpcbench.contract.treatment import Treatment

HOMOMORPHIC_RANKS = 32767 // 127
"""Largest number of ranks for which sums of 8-bit integers from -127 to 127 fit in 16 bits."""


def resolve_treatment(
    scheme: Scheme, traffic: Traffic, setting: TrafficSettings, *, step: int | None = None
) -> Treatment:
    """Resolve the treatment of one kind of traffic in a step of a run, by default the last step."""
    half = _travels_as(traffic, setting) in ("bf16", "fp16")
    return scheme.treatment(traffic, half=half, step=step or setting.train.steps)


def resolve_treatments(
    scheme: Scheme, setting: TrafficSettings, *, step: int | None = None
) -> dict[Traffic, Treatment]:
    """Resolve the treatment of each kind of traffic in a step of a run, by default the last step."""
    return {traffic: resolve_treatment(scheme, traffic, setting, step=step) for traffic in list_live_traffic(setting)}


def list_treatments(scheme: Scheme, setting: TrafficSettings) -> list[tuple[Traffic, Treatment]]:
    """List the treatments of each kind of traffic in all steps of a run."""
    return [
        each for step in _list_steps(scheme, setting) for each in resolve_treatments(scheme, setting, step=step).items()
    ]


def _list_steps(scheme: Scheme, setting: TrafficSettings) -> list[int]:
    """List one step from each interval of the run within which treatments do not change."""
    return [step for step in scheme.change_steps if step <= setting.train.steps]


def find_schedule_misfit(scheme: Scheme, train: Train) -> str | None:
    """Return why the rules of a scheme cannot change between the steps of a run, or None if they can."""
    if len(scheme.change_steps) == 1:
        return None
    remedy = "leave from_step and until_step out"
    if train.sync != "all-reduce":
        return f"rules with steps need workers in the same step, but sync is {train.sync}: use all-reduce, or {remedy}"
    if train.schedule in UNFLUSHED:
        return (
            f"schedule {train.schedule} sends messages of several steps at once, which rules with steps cannot "
            f"distinguish: use schedule 1f1b, or {remedy}"
        )
    return None


def list_idle_rules(scheme: Scheme, setting: TrafficSettings) -> list[str]:
    """Return a line for each rule that matches no traffic of the run, or whose error feedback has no effect."""
    rules, resolved = scheme.all_rules, list_treatments(scheme, setting)
    used = {treatment.rule for _, treatment in resolved}
    feeding = {treatment.rule for _, treatment in resolved if treatment.feedback}
    exact = [
        f"{scheme.name_rule(k)} has no error to feed back: the codec is lossless, and messages are not rounded to 16 "
        "bits"
        for k in sorted(used - feeding)
        if rules[k].feedback
    ]
    return exact + [
        f"{scheme.name_rule(k)} applies to no message"
        + _explain_idle(rules[k], {traffic for traffic, _ in resolved}, setting.train.steps)
        for k in range(1, len(rules))
        if k not in used
    ]


def _explain_idle(rule: Rule, live: set[Traffic], steps: int) -> str:
    if rule.from_step > steps:
        return f": its first step is {rule.from_step}, but the run has only {steps} steps"
    if any(rule.matches(traffic) for traffic in live):
        return ": later rules apply to all traffic that this rule matches"
    return " in this layout"


def find_fp64_obstacle(scheme: Scheme, setting: TrafficSettings) -> tuple[int, str] | None:
    """Return the first rule that cannot encode fp64 messages of the run, or None if all rules can.

    The result is the index of the rule and a message that states the problem and its remedy.
    """
    for traffic, treatment in list_treatments(scheme, setting):
        if _travels_as(traffic, setting) != "fp64":
            continue
        remedy = "set train.comm_precision to fp32" if find_content(traffic) else "train with another precision"
        if spec.parse(treatment.codec).takes_fp64 is False:
            return treatment.rule, f"cannot encode: {remedy}, or use a lossless codec (none, mpc, xpk)"
        if treatment.keeps_errors:
            return (
                treatment.rule,
                f"cannot correct, because errors are kept in fp32: {remedy}, or leave feedback and low_rank out",
            )
    return None


def _travels_as(traffic: Traffic, setting: TrafficSettings) -> Precision:
    """Return the number format of messages. Momenta have a fixed format."""
    content = find_content(traffic)
    return setting.train.message_formats[content] if content else setting.train.sum_format


def find_missed_stage(scheme: Scheme, zero: int) -> int | None:
    """Return the index of a rule for ZeRO gathers if no such rule applies to this ZeRO stage, else None."""
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
    """Return why the backward pass would not use the same values as the forward pass, or None if it would.

    Autograd treats the codec as the identity. A gradient is therefore correct only if the backward pass uses the values
    that the forward pass decoded. ZeRO-3 gathers weights for each pass, and recomputation sends activations again.
    """
    reasons = (_explain_in_step(scheme, setting, step) for step in _list_steps(scheme, setting))
    return next((reason for reason in reasons if reason), None)


def _explain_in_step(scheme: Scheme, setting: TrafficSettings, step: int) -> str | None:
    sent = resolve_treatments(scheme, setting, step=step)
    if ("CP", "FORWARD", "ACT") in sent and (why := _other_keys(scheme, setting, step)):
        return why
    if ("ZERO", "FORWARD", "PARAM") in sent:
        there, back = sent["ZERO", "FORWARD", "PARAM"], sent["ZERO", "BACKWARD", "PARAM"]
        if there.is_random or back.is_random:
            name = scheme.name_rule((there if there.is_random else back).rule)
            return (
                f"{name} rounds gathered weights at random, so forward and backward pass use different weights: choose "
                "a codec without random rounding for ZERO"
            )
        if setting.train.node_copy:
            if not (back.is_lossless or back.between_nodes):
                return (
                    f"{scheme.name_rule(back.rule)} encodes the weights of the node's copy a second time, so forward "
                    "and backward pass use different weights: give ZERO BACKWARD a lossless codec, such as none"
                )
        elif not (there.is_lossless and back.is_lossless) and there != back:
            return (
                "forward and backward pass use different weights, decoded with "
                f"{scheme.name_rule(there.rule)} and {scheme.name_rule(back.rule)}: use one rule for both, or "
                "node_copy: true"
            )
    streamed = setting.layout.tensor in ("2d", "2.5d")
    if streamed or setting.train.recompute not in ("none", "selective"):
        for traffic, treatment in sent.items():
            if traffic[0] in ("TP", "SP", "EP") and traffic[1] == "FORWARD" and treatment.is_random:
                name = scheme.name_rule(treatment.rule)
                if streamed:
                    return (
                        f"{name} rounds at random, but tensor {setting.layout.tensor} sends activations and weights "
                        "again for the backward pass, and the copies would differ: use a codec without random "
                        "rounding"
                    )
                return (
                    f"{name} rounds at random, so recomputed activations differ from those of the forward pass: use a "
                    "codec without random rounding, or recompute: none"
                )
    return None


def _other_keys(scheme: Scheme, setting: TrafficSettings, step: int) -> str | None:
    """Return why attention's backward pass would not use the keys and values of its forward pass, or None if it would.

    Ring attention sends keys and values again in the backward pass. Ulysses stores keys and values, unless attention is
    recomputed.
    """
    treatment = scheme.treatment(("CP", "FORWARD", "ACT"), step=step)
    if not treatment.is_random:
        return None
    name = scheme.name_rule(treatment.rule)
    if setting.layout.context != "ulysses":
        return (
            f"{name} rounds at random, but context {setting.layout.context} sends keys and values again for the "
            "backward pass, and the copies would differ: use a codec without random rounding, or context ulysses"
        )
    if setting.train.recompute != "none":
        return (
            f"{name} rounds at random, so recomputed attention differs from that of the forward pass: use a codec "
            "without random rounding, or recompute: none"
        )
    return None


def find_gpu_obstacle(scheme: Scheme) -> tuple[int | None, str] | None:
    """Return the part of a scheme that cannot run on a GPU, or None if all parts can.

    The result is the index of the rule (None for the algorithm), and a message that states the problem and its remedy.
    """
    if scheme.algorithm == "homomorphic":
        return None, "algorithm homomorphic sums in host memory: use two-shot, or device cpu"
    for k, rule in enumerate(scheme.all_rules):
        if not spec.parse(rule.codec).on_gpu:
            return k, f"codec {rule.codec} has no kernels for a GPU: use another codec, or device cpu"
    return None


def explain_sum_overflow(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Return why homomorphic sums may overflow in a group of the run, or None if they cannot overflow."""
    for traffic, treatment in list_treatments(scheme, setting):
        ranks = {"DP": setting.layout.replicas, "TP": setting.layout.depth if traffic[3:] else setting.layout.tp}
        scattered = traffic[0] == "DP" and setting.train.zero > 0
        summed = treatment.algorithm is Algorithm.HOMOMORPHIC and not (scattered or treatment.feedback)
        if summed and ranks.get(traffic[0], 1) > HOMOMORPHIC_RANKS:
            return (
                f"homomorphic sums of {ranks[traffic[0]]} ranks of {traffic[0]} do not fit in 16 bits: use another "
                f"algorithm, or at most {HOMOMORPHIC_RANKS} ranks"
            )
    return None


def explain_drifting_copies(scheme: Scheme, setting: TrafficSettings) -> str | None:
    """Return why the copies of a tied weight on the first and last stage would diverge, or None if they remain equal.

    Each call of a codec draws new random numbers, and the two stages make different calls.
    """
    if setting.tied and setting.layout.pp > 1:
        for traffic, treatment in list_treatments(scheme, setting):
            if traffic in (("ZERO", "STEP", "PARAM"), ("DP", "STEP", "OPTIM")) and treatment.is_random:
                return (
                    f"{scheme.name_rule(treatment.rule)} rounds at random, so the copies of the tied weight on the "
                    "first and the last stage would drift apart: use a codec without random rounding, or a model "
                    "whose weights are not tied"
                )
    return None
