"""Which rule of a scheme applies to which traffic, and which rules contradict each other.

A list of rules begins with the scheme's default, like `Scheme.all_rules`.
"""

from collections.abc import Sequence

from hpcbench.codecs import spec
from hpcbench.contract.scheme import Rule
from hpcbench.contract.section import Precision
from hpcbench.contract.traffic import Setting, Traffic, content_of, live, possible

HOMOMORPHIC_RANKS = 32767 // 127
"""The largest number of ranks whose 8-bit integers, each from -127 to 127, have sums that fit 16 bits."""


def applying(rules: Sequence[Rule], traffic: Traffic) -> int:
    """Index of the rule that applies: the last one that matches. The default, at index 0, matches everything."""
    return max(k for k, rule in enumerate(rules) if rule.matches(traffic))


def called(rules: Sequence[Rule], k: int) -> str:
    """A rule's name in messages to the author of the scheme."""
    rule = rules[k]
    words = " ".join(filter(None, (rule.dimension, rule.phase, rule.kind, rule.axis, rule.codec)))
    return f"rule {k} ({words})" if k else f"the default ({words})"


def idle(rules: Sequence[Rule], setting: Setting) -> list[str]:
    """A line for each rule that applies to no traffic of the run, and for each whose feedback has no error to keep."""
    sent = live(setting)
    used = {applying(rules, triple) for triple in sent}
    kept = {applying(rules, triple) for triple in sent if keeps_errors(rules[applying(rules, triple)], triple, setting)}
    exact = [
        f"{called(rules, k)} has no error to feed back: the codec is lossless, and messages are not rounded to 16 bits"
        for k in sorted(used - kept)
        if rules[k].feedback
    ]
    return exact + [
        f"{called(rules, k)} carries nothing"
        + (
            ": later rules apply to all that it matches"
            if any(rules[k].matches(t) for t in sent)
            else " in this layout"
        )
        for k in range(1, len(rules))
        if k not in used
    ]


def keeps_errors(rule: Rule, traffic: Traffic, setting: Setting) -> bool:
    """Whether a rule with feedback has errors to keep for this traffic.

    A lossless codec has none. Messages in 16 bits still lose what they are rounded by.
    """
    return rule.feedback and (not _lossless(rule.codec) or _travels_as(traffic, setting) in ("bf16", "fp16"))


def beyond_fp64(rules: Sequence[Rule], setting: Setting) -> tuple[int, str] | None:
    """The first rule that cannot take fp64 messages of the run: its index, and why with the remedy; None if all can."""
    for traffic in live(setting):
        k = applying(rules, traffic)
        rule = rules[k]
        if _travels_as(traffic, setting) != "fp64":
            continue
        remedy = "set train.comm_precision to fp32" if content_of(traffic) else "train with another precision"
        if spec.parse(rule.codec).takes_fp64 is False:
            return k, f"cannot encode: {remedy}, or use a lossless codec (none, mpc, xpk)"
        if keeps_errors(rule, traffic, setting):
            return k, f"cannot correct, because errors are kept in fp32: {remedy}, or leave feedback out"
    return None


def _travels_as(traffic: Traffic, setting: Setting) -> Precision:
    """Number format in which values travel. That of momenta is fixed."""
    content = content_of(traffic)
    return setting.train.message_formats[content] if content else setting.train.sum_format


def missed_stage(rules: Sequence[Rule], zero: int) -> int | None:
    """Index of a rule that encodes a gather which this ZeRO stage lacks, if no rule encodes one that it has."""
    phases = {0: (), 3: ("FORWARD", "BACKWARD")}.get(zero, ("STEP",))
    of_weights = [
        k
        for k, rule in enumerate(rules)
        if rule.codec != "none" and {triple[0] for triple in possible() if rule.matches(triple)} == {"ZERO"}
    ]
    if any(rules[k].phase in (None, *phases) for k in of_weights):
        return None
    return of_weights[0] if of_weights else None


def wrong_gradients(rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why the backward pass would see other values than the forward pass; None if both see the same.

    Autograd takes the codec as the identity. So a gradient is right only if the backward pass uses the values that the
    forward pass decoded. ZeRO-3 gathers weights for each pass, and recomputation sends activations again.
    """
    sent = live(setting)
    if ("CP", "FORWARD", "ACT") in sent and (why := _other_keys(rules, setting)):
        return why
    if ("ZERO", "FORWARD", "PARAM") in sent:
        k, j = (applying(rules, ("ZERO", phase, "PARAM")) for phase in ("FORWARD", "BACKWARD"))
        there, back = rules[k], rules[j]
        if _random(there.codec) or _random(back.codec):
            bad = k if _random(there.codec) else j
            return (
                f"{called(rules, bad)} rounds gathered weights at random, so that forward and backward pass compute "
                "with different ones: use a codec that does not, for ZERO"
            )
        if setting.train.node_copy:
            if not (_lossless(back.codec) or back.between_nodes):
                return (
                    f"{called(rules, j)} changes the weights of the node's copy once more, so that forward and "
                    "backward pass compute with different ones: give ZERO BACKWARD a lossless codec, such as none"
                )
        elif not (_lossless(there.codec) and _lossless(back.codec)) and _terms(there) != _terms(back):
            return (
                f"forward pass and backward pass compute with different weights, decoded by {called(rules, k)} and by "
                f"{called(rules, j)}: use one rule for both, or node_copy: true"
            )
    streamed = setting.layout.tensor in ("2d", "2.5d")
    if streamed or setting.train.recompute not in ("none", "selective"):
        for traffic in sent:
            k = applying(rules, traffic)
            if traffic[0] in ("TP", "SP", "EP") and traffic[1] == "FORWARD" and _random(rules[k].codec):
                if streamed:
                    return (
                        f"{called(rules, k)} rounds at random, and tensor {setting.layout.tensor} sends activations "
                        "and weights again for the backward pass, which would be others: use a codec that does not"
                    )
                return (
                    f"{called(rules, k)} rounds at random, so that recomputed activations are not those of the "
                    "forward pass: use a codec that does not, or recompute: none"
                )
    return None


def _other_keys(rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why the backward pass of attention would see other keys and values than the forward pass; None if it does not.

    A ring sends them once more for the backward pass. Ulysses keeps what it has got, unless attention is recomputed.
    """
    k = applying(rules, ("CP", "FORWARD", "ACT"))
    if not _random(rules[k].codec):
        return None
    if setting.layout.context != "ulysses":
        return (
            f"{called(rules, k)} rounds at random, and context {setting.layout.context} sends keys and values again "
            "for the backward pass, which would be others: use a codec that does not, or context ulysses"
        )
    if setting.train.recompute != "none":
        return (
            f"{called(rules, k)} rounds at random, so that recomputed attention is not that of the forward pass: use a "
            "codec that does not, or recompute: none"
        )
    return None


def refused_on_gpu(algorithm: str, rules: Sequence[Rule]) -> tuple[int | None, str] | None:
    """The part of a scheme that only the CPU can run: the index of its rule (None for the algorithm), and why."""
    if algorithm == "homomorphic":
        return None, "homomorphic sums are made in host memory: use two-shot, or device cpu"
    for k, rule in enumerate(rules):
        if not spec.parse(rule.codec).on_gpu:
            return k, f"codec {rule.codec} has no kernels for a GPU: use another, or device cpu"
    return None


def too_many_to_sum(algorithm: str, rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why homomorphic sums would overflow in a group of the run; None if they fit."""
    if algorithm != "homomorphic":
        return None
    sizes = {"DP": setting.layout.replicas, "TP": setting.layout.tp}
    for triple in live(setting):
        rule, ranks = rules[applying(rules, triple)], sizes.get(triple[0], 1)
        if triple[3:]:  # of a tensor grid only gradients over depth are all-reduced
            ranks = setting.layout.depth if triple[3:] == ("e",) else 1
        scattered = triple[0] == "DP" and setting.train.zero > 0
        elsewhere = scattered or rule.feedback or rule.between_nodes  # by an algorithm that can
        if rule.codec.startswith("int8") and ranks > HOMOMORPHIC_RANKS and not elsewhere:
            return (
                f"homomorphic sums of {ranks} ranks of {triple[0]} do not fit 16 bits: use another algorithm, or at "
                f"most {HOMOMORPHIC_RANKS} ranks"
            )
    return None


def drifting_copies(rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why the copies of a tied weight on the first and last stage would differ in time; None if they stay equal.

    Each call of a codec draws its own random numbers, and the two stages make different calls.
    """
    if setting.tied and setting.layout.pp > 1:
        for triple in live(setting):
            k = applying(rules, triple)
            if triple in (("ZERO", "STEP", "PARAM"), ("DP", "STEP", "OPTIM")) and _random(rules[k].codec):
                return (
                    f"{called(rules, k)} rounds at random, so that the copies of the tied weight on the first and the "
                    "last stage would part: use a codec that does not, or a model whose weights are not tied"
                )
    return None


def _terms(rule: Rule) -> tuple[str, int, bool]:
    return rule.codec, rule.min_bytes, rule.between_nodes


def _random(codec: str) -> bool:
    return codec.endswith(":stochastic")


def _lossless(codec: str) -> bool:
    """Whether a codec is lossless. Nothing is known here of a codec from another package."""
    return spec.parse(codec).lossless is True
