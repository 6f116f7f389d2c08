"""Which traffic a run has, and which rule of its scheme applies to it: read without NumPy, as login nodes do."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from hpcbench.codecs import spec

HOMOMORPHIC_RANKS = 32767 // 127
"""So many ranks' 8-bit integers, each from -127 to 127, have sums that fit 16 bits."""

Triple = tuple[str, str, str]
"""Dimension, phase and kind of a channel: the enumerations of `channel`, or their words."""


class Named(Protocol):
    """A rule of a study, of a run file or of a policy: what it is for, and its codec."""

    @property
    def dimension(self) -> str | None: ...

    @property
    def phase(self) -> str | None: ...

    @property
    def kind(self) -> str | None: ...

    @property
    def codec(self) -> str: ...


class Rule(Named, Protocol):
    """A rule with its limits. Lists of rules begin with the scheme's default, so that rule k stands at index k."""

    @property
    def min_bytes(self) -> int: ...

    @property
    def between_nodes(self) -> bool: ...

    @property
    def feedback(self) -> bool: ...


class Sizes(Protocol):
    """A layout, of a study or of a run."""

    @property
    def dp(self) -> int: ...

    @property
    def tp(self) -> int: ...

    @property
    def pp(self) -> int: ...


class Training(Protocol):
    """What of a study's or a run's settings decides which traffic there is."""

    @property
    def zero(self) -> int: ...

    @property
    def optimizer(self) -> str: ...

    @property
    def sequence_parallel(self) -> bool: ...

    @property
    def node_copy(self) -> bool: ...

    @property
    def recompute(self) -> str | int: ...


class Setting(NamedTuple):
    """What decides which traffic there is."""

    dp: int
    tp: int
    pp: int
    zero: int
    optimizer: str
    sequence_parallel: bool
    node_copy: bool
    recompute: str | int
    tied: bool = False
    """Embedding and head share a weight."""

    @classmethod
    def of(cls, sizes: Sizes, train: Training, *, tied: bool) -> "Setting":
        """That of a run."""
        return cls(
            sizes.dp,
            sizes.tp,
            sizes.pp,
            train.zero,
            train.optimizer,
            train.sequence_parallel,
            train.node_copy,
            train.recompute,
            tied,
        )


_SENT_IF: dict[Triple, Callable[[Setting], bool]] = {
    ("DP", "BACKWARD", "GRAD"): lambda s: s.dp > 1,
    ("DP", "STEP", "OPTIM"): lambda s: s.dp > 1 and s.optimizer == "onebit-adam",
    ("ZERO", "STEP", "PARAM"): lambda s: s.dp > 1 and s.zero in (1, 2),
    ("ZERO", "FORWARD", "PARAM"): lambda s: s.dp > 1 and s.zero == 3,
    ("ZERO", "BACKWARD", "PARAM"): lambda s: s.dp > 1 and s.zero == 3,
    ("TP", "FORWARD", "ACT"): lambda s: s.tp > 1 and not s.sequence_parallel,
    ("TP", "BACKWARD", "GRAD"): lambda s: s.tp > 1 and not s.sequence_parallel,
    ("SP", "FORWARD", "ACT"): lambda s: s.tp > 1 and s.sequence_parallel,
    ("SP", "BACKWARD", "GRAD"): lambda s: s.tp > 1 and s.sequence_parallel,
    ("PP", "FORWARD", "ACT"): lambda s: s.pp > 1,
    ("PP", "BACKWARD", "GRAD"): lambda s: s.pp > 1,
    ("PP", "STEP", "GRAD"): lambda s: s.pp > 1 and s.tied,
}
"""All traffic of the engine that a rule may speak of, and whether a run has it."""

_STANDS_FOR = {"SP": "TP"}
"""Sequence parallelism cuts each all-reduce of tensor parallelism in two: a scheme that speaks of that means both."""


def live(setting: Setting) -> list[Triple]:
    """The traffic that a run has."""
    return [triple for triple, sent in _SENT_IF.items() if sent(setting)]


def possible(optimizer: str | None = None) -> list[Triple]:
    """The traffic that runs have in one layout or another, with one optimizer or any."""
    return [triple for triple in _SENT_IF if triple[2] != "OPTIM" or optimizer in (None, "onebit-adam")]


def matches(rule: Named, triple: Triple) -> bool:
    """Whether a rule is for the traffic; what it leaves out matches everything."""
    dimension, phase, kind = triple
    return (
        rule.dimension in (None, dimension, _STANDS_FOR.get(dimension))
        and rule.phase in (None, phase)
        and rule.kind in (None, kind)
    )


def applying(rules: Sequence[Named], triple: Triple) -> int:
    """Index of the rule that applies: the last one that matches. The default, at index 0, matches everything."""
    return max(k for k, rule in enumerate(rules) if matches(rule, triple))


def called(rules: Sequence[Named], k: int) -> str:
    """A rule as one would name it to its author."""
    rule = rules[k]
    words = " ".join(filter(None, (rule.dimension, rule.phase, rule.kind, rule.codec)))
    return f"rule {k} ({words})" if k else f"the default ({words})"


def idle(rules: Sequence[Named], setting: Setting) -> list[str]:
    """One line for each rule that applies to nothing that the run sends."""
    sent = live(setting)
    used = {applying(rules, triple) for triple in sent}
    return [
        f"{called(rules, k)} carries nothing"
        + (
            ": later rules apply to all that it matches"
            if any(matches(rules[k], t) for t in sent)
            else " in this layout"
        )
        for k in range(1, len(rules))
        if k not in used
    ]


def missed_stage(rules: Sequence[Named], zero: int) -> int | None:
    """Index of a rule for weights gathered in a phase in which the ZeRO stage gathers none, if none is for its own."""
    phases = {0: (), 3: ("FORWARD", "BACKWARD")}.get(zero, ("STEP",))
    of_weights = [
        k for k, rule in enumerate(rules) if {triple[0] for triple in possible() if matches(rule, triple)} == {"ZERO"}
    ]
    if any(rules[k].phase in (None, *phases) for k in of_weights):
        return None
    return of_weights[0] if of_weights else None


def wrong_gradients(rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why the backward pass would see other values than the forward pass; None where both see the same.

    The codec is the identity to autograd: a gradient is right only where what was decoded forward is what is used
    backward. ZeRO-3 gathers weights for either pass, and recomputation sends activations again.
    """
    sent = live(setting)
    if ("ZERO", "FORWARD", "PARAM") in sent:
        k, j = (applying(rules, ("ZERO", phase, "PARAM")) for phase in ("FORWARD", "BACKWARD"))
        there, back = rules[k], rules[j]
        if _random(there.codec) or _random(back.codec):
            bad = k if _random(there.codec) else j
            return (
                f"{called(rules, bad)} rounds gathered weights at random, so that forward and backward pass compute "
                "with different ones: use a codec that does not, for ZERO"
            )
        if setting.node_copy:
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
    if setting.recompute not in ("none", "selective"):
        for dimension in ("TP", "SP"):
            if (dimension, "FORWARD", "ACT") in sent:
                k = applying(rules, (dimension, "FORWARD", "ACT"))
                if _random(rules[k].codec):
                    return (
                        f"{called(rules, k)} rounds at random, so that recomputed activations are not those of the "
                        "forward pass: use a codec that does not, or recompute: none"
                    )
    return None


def refused_on_gpu(algorithm: str, rules: Sequence[Named]) -> tuple[int | None, str] | None:
    """What of a scheme only the CPU does: the index of its rule, None for the algorithm; and why, with the remedy."""
    if algorithm == "homomorphic":
        return None, "homomorphic sums are made in host memory: use two-shot, or device cpu"
    for k, rule in enumerate(rules):
        if not spec.parse(rule.codec).on_gpu:
            return k, f"codec {rule.codec} has no kernels for a GPU: use another, or device cpu"
    return None


def too_many_to_sum(algorithm: str, rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why homomorphic sums would overflow in a group of the run; None where they fit."""
    if algorithm != "homomorphic":
        return None
    sizes = {"DP": setting.dp, "TP": setting.tp}
    for triple in live(setting):
        rule, ranks = rules[applying(rules, triple)], sizes.get(triple[0], 1)
        scattered = triple[0] == "DP" and setting.zero > 0
        elsewhere = scattered or rule.feedback or rule.between_nodes  # by an algorithm that can
        if rule.codec.startswith("int8") and ranks > HOMOMORPHIC_RANKS and not elsewhere:
            return (
                f"homomorphic sums of {ranks} ranks of {triple[0]} do not fit 16 bits: use another algorithm, or at "
                f"most {HOMOMORPHIC_RANKS} ranks"
            )
    return None


def drifting_copies(rules: Sequence[Rule], setting: Setting) -> str | None:
    """Why the two copies of a tied weight would part, which the first and the last stage update; None where they stay.

    Each call of a codec draws numbers of its own, and stages make different calls.
    """
    if setting.tied and setting.pp > 1:
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
    """Of another package's codec nothing is known here."""
    return spec.parse(codec).lossless is True
