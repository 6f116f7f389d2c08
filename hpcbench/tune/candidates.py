"""Search candidates: one codec for each dimension that has traffic, or the schemes of a program's study."""

from collections.abc import Mapping, Sequence

from hpcbench.codecs import spec
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.load import Loaded
from hpcbench.study.schema import SchemeEntry
from hpcbench.tune.choose import Combination

CODECS = ("bf16", "int8:256", "zfp:16", "int4:64")
"""Codecs that are tried in each dimension.

Lossless codecs are left out, because they shorten dense messages too little.
"""
DIMENSIONS = ("DP", "ZERO", "TP", "CP", "EP", "PP")
CONTROLS = {"naive-bf16": "bf16", "naive-int8": "int8:256"}
"""Reference schemes with one codec for all traffic, included in each search."""


def choose_run(runs: Sequence[ExpandedRun], loaded: Loaded) -> ExpandedRun:
    """Return the baseline run of a single-cell study.

    Raises
    ------
    UserError
        The matrix varies settings other than the scheme.
    """
    keys = [key for key in runs[0].cell if len({str(run.cell[key]) for run in runs}) > 1]
    if keys:
        where = loaded.document.where(("matrix", keys[0]))
        raise UserError(
            f"{where}: matrix.{keys[0]}: tune searches only one cell: keep one value, for example with --set "
            f"'matrix.{keys[0]}=[...]'"
        )
    return next(run for run in runs if run.scheme_name == loaded.study.baseline.scheme)


def name_combination(codecs: Mapping[str, str]) -> str:
    """Return the scheme name of a combination, such as ``dp-int8-tp-bf16``."""
    parts = [f"{dimension.lower()}-{codec.replace(':', '-')}" for dimension, codec in codecs.items() if codec != "none"]
    return "-".join(parts) or "identity"


def make_scheme(codecs: Mapping[str, str]) -> SchemeEntry:
    """Return a combination's scheme. Dimensions without a codec use the same algorithm without compression."""
    rules = [{"dimension": dimension, "codec": codec} for dimension, codec in codecs.items() if codec != "none"]
    return SchemeEntry.model_validate({"algorithm": "encoded", "default": "none", "rules": rules})


def is_lossless(scheme: SchemeEntry) -> bool:
    """Return whether a scheme leaves all values unchanged, considering its rules and its other settings."""
    codecs = [rule.codec for rule in scheme.all_rules]
    return not scheme.process_changes and all(spec.parse(codec).lossless is True for codec in codecs)


def name_combinations(combinations: Sequence[Combination]) -> dict[str, Combination]:
    """Return combinations, keyed by scheme name."""
    return {name_combination(_without_algorithm(each.codecs)): each for each in combinations}


def _without_algorithm(codecs: Mapping[str, str]) -> dict[str, str]:
    return {dimension: codec for dimension, codec in codecs.items() if dimension in DIMENSIONS}
