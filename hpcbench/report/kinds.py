"""How simple a scheme is, and which schemes are controls: what a codec's gain is held against."""

from enum import IntEnum
from typing import Any

from hpcbench.collect.lines import member, text
from hpcbench.contract.training import CONTENTS
from hpcbench.report.compare import Cell, Row
from hpcbench.report.measures import own_environment

_CASTS = {"none", "bf16", "fp16"}
_TRAITS = ("dimension", "phase", "kind")
"""What makes a rule hold for some of the traffic only."""


class Kind(IntEnum):
    """What a scheme does to the traffic, the simplest first: a later one has to be shown to be worth it."""

    BASELINE = 0
    PLAIN = 1
    CAST = 2
    ONE_CODEC = 3
    BY_TRAFFIC = 4
    UNKNOWN = 5

    @property
    def words(self) -> str:
        """For a reader."""
        return _WORDS[self]

    @property
    def is_control(self) -> bool:
        """Whether a codec's gain is held against it."""
        return self in (Kind.PLAIN, Kind.CAST)


_WORDS = {
    Kind.BASELINE: "the baseline",
    Kind.PLAIN: "no codec",
    Kind.CAST: "a plain cast to 16 bits",
    Kind.ONE_CODEC: "one codec for all traffic",
    Kind.BY_TRAFFIC: "codecs by traffic, or with feedback",
    Kind.UNKNOWN: "not known",
}


def has_half_messages(row: Row) -> bool:
    """Whether all messages of a scheme's runs have 16 bits before any codec: beside it a plain cast gains nothing."""
    train: Any = row.runs[0].run.settings.get("train")
    precision = text(train, "precision")
    chosen = [text(member(train, "comm_precision"), content) for content in CONTENTS]
    return all((precision if name == "auto" else name) in ("bf16", "fp16") for name in chosen)


def kind(cell: Cell, row: Row) -> Kind:
    """What a scheme is, by the settings of its runs; unknown for logs that a user named."""
    if row.scheme == cell.baseline:
        return Kind.BASELINE
    run = row.runs[0].run
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
