"""Candidates of a program's study: its schemes, the controls, systems of its framework, and diagnosed combinations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.contract.program import Program
from hpcbench.contract.scheme import Scheme
from hpcbench.diagnose.command import find_traces
from hpcbench.diagnose.diagnosis import Diagnosis, diagnose
from hpcbench.diagnose.gains import FREE
from hpcbench.diagnose.kineto import read_rank
from hpcbench.errors import UserError
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.systems import read_systems
from hpcbench.tune.candidates import CONTROLS, DIMENSIONS, is_lossless, name_combinations
from hpcbench.tune.choose import Combination, Option, list_undominated
from hpcbench.tune.losses import estimate_loss
from hpcbench.tune.prune import LAYERS, NOTABLE, PrunedOption, SearchPlan

FORMATS = {"bf16": "bf16", "int8:256": "int8", "int4:64": "4 bits"}
"""Codecs of the search, and their names in a diagnosis."""
SCHEME = "scheme"
"""Dimension name that stands for the choice of an entire scheme."""
LOSS = 0.001
"""Estimated loss increase of a scheme about which nothing is known."""


def list_names(program: Program, matrix: Sequence[str], defined: Sequence[str], baseline: str) -> list[str]:
    """Return the candidates' names without the baseline.

    The candidates are the schemes in the matrix, the schemes that the study defines, the controls, and the presets of
    other systems that the program's command can use unchanged.
    """
    systems = [
        name
        for name, preset in read_systems().items()
        if preset.framework == program.log
        and not preset.asks
        and all(word in program.command for word in preset.command_words)
    ]
    return list(dict.fromkeys(name for name in (*matrix, *defined, *CONTROLS, *systems) if name != baseline))


def plan_program(
    schemes: Mapping[str, Scheme], baseline: str, diagnosis: Diagnosis | None, budget: float
) -> SearchPlan:
    """Return the candidates of a program's study.

    Parameters
    ----------
    schemes
        Schemes keyed by name, with the baseline.
    baseline
        Name of the baseline.
    diagnosis
        Diagnosis of the program's traces, which predicts the most time that codecs can save.
    budget
        Maximum loss increase, as a fraction.

    Raises
    ------
    UserError
        The diagnosis contains no steps.
    """
    named = {name: each for name, each in schemes.items() if name != baseline}
    lossless = frozenset(name for name, each in named.items() if is_lossless(SchemeEntry(**each.model_dump())))
    controls = [name for name in CONTROLS if name in named]
    if diagnosis is None:
        # Without a prediction, gains and losses are equally likely. Candidates keep the study's order.
        options = {SCHEME: [Option("none", 0.0, 0.0), *(Option(name, -0.1, LOSS) for name in named)]}
        combinations = {name: Combination({SCHEME: name}, -0.1, LOSS) for name in named}
        note = (
            "no gains are predicted: for predictions, give traces of the program with --traces DIR (`hpcbench "
            "diagnose --run` records traces)"
        )
        return SearchPlan(options, combinations, (), controls, lossless, None, [note])
    if diagnosis.steps is None:
        raise UserError(
            "--traces: the traces contain no steps, which predictions require: record the traces with `hpcbench "
            "diagnose --run`"
        )
    return _plan_diagnosed(named, controls, lossless, diagnosis, budget)


def _plan_diagnosed(
    named: Mapping[str, Scheme], controls: Sequence[str], lossless: frozenset[str], diagnosis: Diagnosis, budget: float
) -> SearchPlan:
    options: dict[str, list[Option]] = {}
    pruned = list[PrunedOption]()
    for dimension in diagnosis.by_dimension():
        if dimension not in DIMENSIONS:
            continue
        options[dimension] = [Option("none", 0.0, 0.0)]
        for codec, wire_format in FORMATS.items():
            gain = diagnosis.gain(dimension, wire_format)
            option = Option(codec, 1 / gain.factor - 1 if gain else 0.0, estimate_loss(dimension, codec))
            if option.seconds >= 0:
                pruned.append(PrunedOption(dimension, codec, "saves no time"))
            elif option.loss > 10 * budget:
                pruned.append(PrunedOption(dimension, codec, f"its estimated loss is {100 * option.loss:.0f} %"))
            else:
                options[dimension].append(option)
    undominated = [each for each in list_undominated(options, LAYERS) if each.seconds < 0]
    combinations = dict(name_combinations(undominated))
    free = sum(gain.factor**-1 - 1 for gain in diagnosis.gains if gain.codec == FREE.name)
    of_schemes = [Option("none", 0.0, 0.0)]
    for name, scheme in named.items():
        seconds, loss = _predict_scheme(scheme, options, free)
        combinations[name] = Combination({SCHEME: name}, seconds, loss)
        of_schemes.append(Option(name, seconds, loss))
    best = max((1 / (1 + max(each.seconds, -0.98)) - 1 for each in undominated if each.loss <= budget), default=0.0)
    at_most = 1 / (1 + max(free, -0.98)) - 1
    # A system of another project may hide or avoid communication, so only free communication bounds its gain.
    has_systems = any(scheme.process_changes for scheme in named.values())
    bound = at_most if has_systems or at_most < NOTABLE else best
    note = "predicted gains of programs are upper bounds from the traces; they do not include the cost of an algorithm"
    return SearchPlan({**options, SCHEME: of_schemes}, combinations, pruned, controls, lossless, bound, [note])


def _predict_scheme(scheme: Scheme, options: Mapping[str, Sequence[Option]], free: float) -> tuple[float, float]:
    """Return the predicted change of the step time and the estimated loss of a scheme with one codec for all traffic.

    A scheme that changes no message and no process saves nothing. Any other scheme is predicted to save half of the
    time that free communication would save.
    """
    if scheme.default == "none" and not scheme.rules and not scheme.process_changes:
        return 0.0, 0.0
    matching = [option for choices in options.values() for option in choices if option.codec == scheme.default]
    if scheme.process_changes or scheme.rules or scheme.default == "none" or not matching:
        return free / 2, LOSS
    return sum(option.seconds for option in matching), sum(option.loss for option in matching)


def diagnose_traces(directory: Path, program: Program) -> Diagnosis:
    """Diagnose the traces of a program.

    Raises
    ------
    UserError
        The directory contains no traces, or the traces cannot be read.
    """
    traces = [read_rank(path, lambda done, size: None) for path in find_traces([directory])]
    return replace(diagnose(traces, program.groups), timeline=())
