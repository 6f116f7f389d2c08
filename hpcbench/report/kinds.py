"""Kinds of schemes, from the simplest to the most complex, and which of them are controls."""

from enum import IntEnum
from typing import Any

from hpcbench.collect.submission import RunResult
from hpcbench.contract.training import CONTENTS
from hpcbench.contract.values import member, text
from hpcbench.report.measures import own_environment

_CASTS = {"none", "bf16", "fp16"}
_TRAITS = ("dimension", "phase", "kind")
"""Fields of a rule that limit it to some of the traffic."""


class Kind(IntEnum):
    """Kinds of schemes, the simplest first. A more complex one must be shown to be worth it."""

    BASELINE = 0
    PLAIN = 1
    CAST = 2
    ONE_CODEC = 3
    BY_TRAFFIC = 4
    UNKNOWN = 5

    @property
    def words(self) -> str:
        """The kind in words for a reader."""
        return _WORDS[self]

    @property
    def is_control(self) -> bool:
        """Whether it is a control that a codec's gain is compared with."""
        return self in (Kind.PLAIN, Kind.CAST)


_WORDS = {
    Kind.BASELINE: "the baseline",
    Kind.PLAIN: "no codec",
    Kind.CAST: "a plain cast to 16 bits",
    Kind.ONE_CODEC: "one codec for all traffic",
    Kind.BY_TRAFFIC: "codecs by traffic, or with feedback",
    Kind.UNKNOWN: "not known",
}


def has_half_messages(run: RunResult) -> bool:
    """Return whether all messages of a run have 16 bits before any codec, so that a plain cast gains nothing."""
    train: Any = run.settings.get("train")
    precision = text(train, "precision")
    chosen = [text(member(train, "comm_precision"), content) for content in CONTENTS]
    return all((precision if name == "auto" else name) in ("bf16", "fp16") for name in chosen)


def classify(run: RunResult, *, is_baseline: bool) -> Kind:
    """Return the kind of a run's scheme, by its settings; unknown for logs that a user named."""
    if is_baseline:
        return Kind.BASELINE
    scheme: Any = run.settings.get("scheme")
    rules = member(scheme, "rules")
    if run.given or text(scheme, "default") is None or not isinstance(rules, list):
        return Kind.UNKNOWN
    if own_environment(run):
        return Kind.ONE_CODEC  # the MPI library's own, for whatever it sends
    codecs = {text(scheme, "default"), *(text(rule, "codec") for rule in rules)}
    if member(scheme, "optimizer") or any(member(rule, "feedback") for rule in rules):
        return Kind.BY_TRAFFIC
    if codecs <= _CASTS:
        return Kind.PLAIN if codecs == {"none"} else Kind.CAST
    apart = any(member(rule, trait) is not None for rule in rules for trait in _TRAITS)
    return Kind.BY_TRAFFIC if len(codecs) > 1 and apart else Kind.ONE_CODEC
