"""Pruning by predicted time: what each codec in each dimension saves, and which candidates can win at all."""

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

NOTABLE = 0.03
"""Gain below which a search is not worth its runs."""
ALGORITHM = "algorithm"
"""Name of the dimension that stands for hpcbench's own algorithms in place of the MPI library's."""
LAYERS = 3
"""Number of combinations that are kept at each predicted loss."""


@dataclass(frozen=True)
class PrunedOption:
    """A codec that was dropped, and why."""

    dimension: str
    codec: str
    reason: str


@dataclass(frozen=True)
class SearchPlan:
    """The candidates of a search."""

    options: Mapping[str, Sequence[Option]]
    """All options, with those that are used by controls alone."""
    combinations: Mapping[str, Combination]
    """Combinations by name of the scheme."""
    pruned: Sequence[PrunedOption]
    controls: Sequence[str]
    lossless: frozenset[str]
    best_gain: float | None
    """Largest predicted gain over the baseline; None if nothing was predicted."""
    notes: Sequence[str]

    @property
    def can_pay(self) -> bool:
        """Whether any candidate may gain enough."""
        return self.best_gain is None or self.best_gain >= NOTABLE


def plan_study(run: ExpandedRun, site: Site, base: Path, *, measured: Path | None, budget: float) -> SearchPlan:
    """Predict each codec in each dimension alone, and combine those that can pay.

    Parameters
    ----------
    run
        The baseline's run of the study.
    site
        The site.
    base
        Directory that relative paths of the study start from.
    measured
        Directory with measured tables or runs, as for `hpcbench predict`.
    budget
        Largest increase of the loss, as a fraction.
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
    """Return the dimensions with traffic, the predicted seconds of the baseline's step, and the links."""
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
    """Return the predicted seconds of a step with each combination, by name of its scheme."""
    runs = [replace(run, scheme_name=name_combination(each), scheme=make_scheme(each)) for each in combinations]
    predictions, _, _ = predict_runs(runs, site, base, measured=measured)
    return {each.scheme: each.time.seconds.value for each in predictions}


def _list_notes(run: ExpandedRun, fabric: Fabric) -> list[str]:
    between = run.size.nodes > 1
    basis = fabric.between_basis if between else fabric.within_basis
    if basis is not InputBasis.ASSUMED:
        return []
    return [f"{fabric.describe(between=between)} is assumed: `hpcbench bench network` measures it"]


def plan_program(schemes: Sequence[str], baseline: str, lossless: Sequence[str]) -> SearchPlan:
    """Return the candidates of a program's study: its schemes, each by itself, without predictions."""
    names = [name for name in schemes if name != baseline]
    # Without a prediction, each scheme may as well lose as gain; the order is that of the study.
    options = {"scheme": [Option("none", 0.0, 0.0), *(Option(name, -0.1, 0.001) for name in names)]}
    combinations = {name: Combination({"scheme": name}, -0.1, 0.001) for name in names}
    note = "nothing is predicted for programs: `hpcbench diagnose` shows what compression could gain at most"
    return SearchPlan(options, combinations, (), [], frozenset(lossless), None, [note])
