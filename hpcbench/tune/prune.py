"""Pruning by predicted time: savings of each codec in each dimension, and candidates that can win."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.batch.sites.site import Site
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.command import predict_runs
from hpcbench.predict.fabric import Fabric
from hpcbench.study.expand import ExpandedRun
from hpcbench.tune.candidates import (
    CODECS,
    CONTROLS,
    DIMENSIONS,
    is_lossless,
    make_scheme,
    name_combination,
    name_combinations,
)
from hpcbench.tune.choose import Combination, Option, list_undominated, sum_options
from hpcbench.tune.losses import estimate_loss

NOTABLE = 0.02
"""Minimum gain that justifies the runs of a search. The race treats smaller differences as negligible, too."""
ALGORITHM = "algorithm"
"""Dimension name that represents a switch from the MPI library's algorithms to hpcbench's."""
LAYERS = 30
"""Number of combinations kept at each predicted loss."""


@dataclass(frozen=True)
class PrunedOption:
    """A dropped codec and the reason."""

    dimension: str
    codec: str
    reason: str


@dataclass(frozen=True)
class SearchPlan:
    """Candidates of a search."""

    options: Mapping[str, Sequence[Option]]
    """All options, including options used only by controls."""
    combinations: Mapping[str, Combination]
    """Combinations, keyed by scheme name."""
    pruned: Sequence[PrunedOption]
    controls: Sequence[str]
    lossless: frozenset[str]
    best_gain: float | None
    """Largest predicted gain over the baseline, or None if nothing was predicted."""
    notes: Sequence[str]

    @property
    def can_pay(self) -> bool:
        """Whether the predicted gains justify a search."""
        return self.best_gain is None or self.best_gain >= NOTABLE


def plan_study(run: ExpandedRun, site: Site, base: Path, *, measured: Path | None, budget: float) -> SearchPlan:
    """Predict each codec in each dimension separately, and combine the promising options.

    Parameters
    ----------
    run
        Baseline run of the study.
    site
        The site.
    base
        Base directory of relative paths in the study.
    measured
        Directory with measured tables or runs, as for `hpcbench predict`.
    budget
        Maximum loss increase, as a fraction.
    """
    dimensions, baseline, fabric = _find_dimensions(run, site, base, measured)
    singles = [{}, *({dimension: codec} for dimension in dimensions for codec in CODECS)]
    seconds = _predict(run, [dict(each) for each in singles], site, base, measured)
    offset = (seconds["identity"] - baseline) / baseline
    options: dict[str, list[Option]] = {ALGORITHM: [Option("encoded", offset, 0.0)]}
    useful: dict[str, list[Option]] = {ALGORITHM: options[ALGORITHM]}
    pruned = []
    for dimension in dimensions:
        options[dimension], useful[dimension] = [Option("none", 0.0, 0.0)], [Option("none", 0.0, 0.0)]
        for codec in CODECS:
            change = (seconds[name_combination({dimension: codec})] - seconds["identity"]) / baseline
            option = Option(codec, change, estimate_loss(dimension, codec))
            options[dimension].append(option)
            if change >= 0:
                pruned.append(PrunedOption(dimension, codec, f"saves no time ({100 * change:+.1f} % of a step)"))
            elif option.loss > 10 * budget:
                pruned.append(PrunedOption(dimension, codec, f"its estimated loss is {100 * option.loss:.0f} %"))
            else:
                useful[dimension].append(option)
    combinations = list_undominated(useful, LAYERS)
    within = [each for each in combinations if each.loss <= budget]
    best = max((1 / (1 + each.seconds) - 1 for each in within if each.seconds > -1), default=0.0)
    named = {name: each for name, each in name_combinations(combinations).items() if each.seconds < 0}
    controls = []
    for control, codec in CONTROLS.items():
        control_sum = sum_options(options, {ALGORITHM: "encoded", **dict.fromkeys(dimensions, codec)})
        same = name_combination(dict.fromkeys(dimensions, codec))
        controls.append(same if same in named else control)
        named.setdefault(controls[-1], control_sum)
    lossless = frozenset(
        name for name, each in named.items() if not each.loss and is_lossless(make_scheme(_list_codecs(each)))
    )
    return SearchPlan(options, named, pruned, controls, lossless, best, _list_notes(run, fabric))


def _list_codecs(combination: Combination) -> dict[str, str]:
    return {dimension: codec for dimension, codec in combination.codecs.items() if dimension in DIMENSIONS}


def _find_dimensions(
    run: ExpandedRun, site: Site, base: Path, measured: Path | None
) -> tuple[list[str], float, Fabric]:
    """Return the dimensions with traffic, the baseline's predicted step time in seconds, and the links."""
    (prediction,), _, machine = predict_runs([run], site, base, measured=measured)
    used = {
        "TP" if traffic[0] == "SP" else traffic[0]
        for traffic, sent in prediction.time.channels.items()
        if sent.message_bytes
    }
    dimensions = [dimension for dimension in DIMENSIONS if dimension in used]
    return dimensions, prediction.time.seconds.value, machine.fabric


def _predict(
    run: ExpandedRun, combinations: Sequence[Mapping[str, str]], site: Site, base: Path, measured: Path | None
) -> dict[str, float]:
    """Return the predicted step time of each combination in seconds, keyed by scheme name."""
    runs = [replace(run, scheme_name=name_combination(each), scheme=make_scheme(each)) for each in combinations]
    predictions, _, _ = predict_runs(runs, site, base, measured=measured)
    return {each.scheme: each.time.seconds.value for each in predictions}


def _list_notes(run: ExpandedRun, fabric: Fabric) -> list[str]:
    between = run.size.nodes > 1
    basis = fabric.between_basis if between else fabric.within_basis
    if basis is not InputBasis.ASSUMED:
        return []
    return [f"{fabric.describe(between=between)} is assumed: to measure, run `hpcbench bench network`"]
