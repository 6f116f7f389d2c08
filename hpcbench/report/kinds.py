"""Kinds of schemes, ordered by complexity, including controls."""

from enum import IntEnum

from hpcbench.collect.submission import RunResult
from hpcbench.contract.training import CONTENTS

_CASTS = {"none", "bf16", "fp16"}
_TRAITS = ("dimension", "phase", "kind")
"""Rule fields that restrict a rule to part of the traffic."""


class SchemeKind(IntEnum):
    """Kinds of schemes, in order of complexity. A more complex scheme must have a significant advantage."""

    BASELINE = 0
    PLAIN = 1
    CAST = 2
    ONE_CODEC = 3
    BY_TRAFFIC = 4
    OTHER_SYSTEM = 5
    UNKNOWN = 6

    @property
    def description(self) -> str:
        """Description of the kind."""
        return _DESCRIPTIONS[self]

    @property
    def is_control(self) -> bool:
        """Whether schemes of this kind are controls that isolate the gain of codecs."""
        return self in (SchemeKind.PLAIN, SchemeKind.CAST)


_DESCRIPTIONS = {
    SchemeKind.BASELINE: "the baseline",
    SchemeKind.PLAIN: "no codec",
    SchemeKind.CAST: "a cast to 16 bits",
    SchemeKind.ONE_CODEC: "one codec for all traffic",
    SchemeKind.BY_TRAFFIC: "codecs by traffic, or with feedback",
    SchemeKind.OTHER_SYSTEM: "another system",
    SchemeKind.UNKNOWN: "not known",
}


def has_half_messages(run: RunResult) -> bool:
    """Return whether all messages of a run have 16-bit values, so that casting them saves nothing."""
    train = run.settings.train
    chosen = [getattr(train.comm_precision, content) for content in CONTENTS]
    return all((train.precision if name == "auto" else name) in ("bf16", "fp16") for name in chosen)


def resolve_kind(run: RunResult, *, is_baseline: bool) -> SchemeKind:
    """Return the kind of a run's scheme according to the settings. For logs that a user passed, the kind is unknown."""
    if is_baseline:
        return SchemeKind.BASELINE
    scheme = run.settings.scheme
    rules, codecs = scheme.rules or (), scheme.codecs
    if run.given or not codecs:
        return SchemeKind.UNKNOWN
    if scheme.process_changes:
        return SchemeKind.OTHER_SYSTEM
    special = (
        rule.feedback or rule.low_rank or rule.mixed_bits or rule.differences or rule.sample_changes or rule.has_steps
        for rule in rules
    )
    if scheme.optimizer or any(special):
        return SchemeKind.BY_TRAFFIC
    if codecs <= _CASTS:
        return SchemeKind.PLAIN if codecs == {"none"} else SchemeKind.CAST
    apart = any(getattr(rule, trait) is not None for rule in rules for trait in _TRAITS)
    return SchemeKind.BY_TRAFFIC if len(codecs) > 1 and apart else SchemeKind.ONE_CODEC
