"""Implementation of ``hpcbench tune``: plan, search on a site, and results."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hpcbench import __version__
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.batch.tracking.lock import locked
from hpcbench.contract.scheme import Scheme
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.present.results import check_output, resolve_suffix
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.find_scheme import NOTHING, find_scheme
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.schema import ProgramStudy, SchemeEntry
from hpcbench.tune.candidates import CONTROLS, DIMENSIONS, choose_run, make_scheme
from hpcbench.tune.programs import SCHEME, diagnose_traces, list_names, plan_program
from hpcbench.tune.prune import SearchPlan, plan_study
from hpcbench.tune.race import SchemeChoice
from hpcbench.tune.results import Tuned, write_scheme
from hpcbench.tune.rounds import RoundResult, list_sets, run_round
from hpcbench.tune.search import SearchLimits, find_next, search
from hpcbench.tune.standings import RaceRules
from hpcbench.tune.state import load_state


@dataclass(frozen=True)
class TuneOptions:
    """Options of ``hpcbench tune``."""

    loss_budget: str
    max_runs: int = 12
    node_hours: float | None = None
    site: str | None = None
    measured: Path | None = None
    traces: Path | None = None
    out: Path | None = None
    sets: Sequence[str] = ()
    dry_run: bool = False
    output: Path | None = None


def parse_budget(text: str) -> float:
    """Parse a loss budget such as ``1%`` or ``0.01`` into a fraction.

    Raises
    ------
    UserError
        The text is not a budget between 0 and 100 %.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e-?[0-9]+)?)\s*(%?)\s*", text)
    try:
        value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UserError(f"--loss-budget {text}: give the largest allowed increase of the loss, such as 1% or 0.01")
    return value


def tune(study: Path, options: TuneOptions) -> int:
    """Search for a scheme, then show and store the result. The exit status is 1 if the search is incomplete.

    Raises
    ------
    UserError
        The study, the site or an option is wrong, or the directory belongs to another search.
    """
    form = resolve_suffix(options.output)
    check_output("--output", options.output)
    budget = parse_budget(options.loss_budget)
    loaded = _add_candidates(load_study(study, list(options.sets)), study, options.sets)
    name = options.site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: no site is set: add `site:` to the study, or give --site")
    site, document = load_site(name, "--site" if options.site else loaded.document.where(("site",)))
    runs = expand(loaded, site.capacity, offer(site))
    run = choose_run(runs, loaded)
    plan = make_plan(runs, run, site, study.parent, options, budget)
    schemes = {each: entry for each in plan.combinations if (entry := _define(each, plan)) is not None}
    definitions: dict[str, Scheme] = {each.scheme_name: each.scheme for each in runs} | dict(schemes)
    presets = (each for each in plan.combinations if each not in definitions)
    definitions |= {each: find_scheme(each, {}, NOTHING, "tune")[0] for each in presets}
    named = loaded.study.study, site.site
    rules = RaceRules(loaded.study.baseline.scheme, budget, lossless=plan.lossless)
    limits = SearchLimits(options.max_runs, options.node_hours if options.node_hours is not None else float("inf"))
    texts = [__version__, loaded.document.text.hex(), list(options.sets), document.text.hex(), budget]
    if options.traces is not None:
        texts.append([[name, each.seconds] for name, each in plan.combinations.items()])
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    directory = (options.out or Path(site.work or ".") / "results" / f"{loaded.study.study}-tune").absolute()
    if options.dry_run:
        state = load_state(directory, digest)
        step = find_next(plan, rules, limits, state)
        done, upcoming = (step, None) if isinstance(step, SchemeChoice) else (None, step)
        done = done if state.rounds else None
        Tuned(*named, plan, rules, state, limits, done, schemes, definitions, upcoming).show(form, options.output)
        return 0
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    seed_key, seed = _find_seed(loaded)

    def run_one(number: int, names: Sequence[str]) -> RoundResult | None:
        sets = list_sets(names, schemes, seed_key=seed_key, seed=seed + number - 1, sets=options.sets)
        return run_round(study, options.site, sets, directory / f"round-{number:02d}", nodes=run.size.nodes)

    with locked(directory):
        state = load_state(directory, digest)
        choice = search(plan, rules, limits, state, directory, run_one, lambda line: console.print(line, markup=False))
        tuned = Tuned(*named, plan, rules, state, limits, choice, schemes, definitions)
        if choice is None:
            console.print(
                f"{shown_path(directory)}: the search is not finished: run the same command again to continue",
                markup=False,
            )
            return 1
        write_scheme(directory, choice.scheme, definitions[choice.scheme])
        tuned.save((directory / "tuned.html", directory / "tuned.json"))
    tuned.show(form, options.output)
    console.print(
        f"The scheme, the HTML report and the state of the search are in {shown_path(directory)}", markup=False
    )
    return 0


def make_plan(
    runs: Sequence[ExpandedRun], run: ExpandedRun, site: Site, base: Path, options: TuneOptions, budget: float
) -> SearchPlan:
    """Return the candidates of a study: combinations of codecs, or the schemes of a program's study.

    Raises
    ------
    UserError
        The traces cannot be used, or traces are given although the study does not run a program.
    """
    if isinstance(run.study, ProgramStudy):
        traces = options.traces
        diagnosis = None if traces is None else diagnose_traces(traces, run.study.program)
        schemes = {each.scheme_name: each.scheme for each in runs}
        return plan_program(schemes, run.study.baseline.scheme, diagnosis, budget)
    if options.traces is not None:
        raise UserError(
            "--traces: applies only to studies with `program:`, because hpcbench predicts its own runs: leave "
            "--traces out"
        )
    return plan_study(run, site, base, measured=options.measured, budget=budget)


def _add_candidates(loaded: Loaded, path: Path, sets: Sequence[str]) -> Loaded:
    """Return a program's study with all candidates in its matrix, and other studies unchanged."""
    study = loaded.study
    if not isinstance(study, ProgramStudy):
        return loaded
    named = (study.matrix.model_extra or {}).get("scheme", [study.scheme])
    base = study.baseline.scheme
    names = list_names(study.program, [str(name) for name in named], list(study.schemes), base)
    return load_study(path, [*sets, f"matrix.scheme={json.dumps([base, *names])}"])


def _define(name: str, plan: SearchPlan) -> SchemeEntry | None:
    """Return a combination's scheme, or None for a preset or a scheme of the study."""
    codecs = plan.combinations[name].codecs
    if name in CONTROLS or SCHEME in codecs:
        return None
    return make_scheme({dimension: codec for dimension, codec in codecs.items() if dimension in DIMENSIONS})


def _find_seed(loaded: Loaded) -> tuple[str | None, int]:
    """Return the seed's key and first value in the study."""
    study = loaded.study
    if isinstance(study, ProgramStudy):
        return ("program.seed" if study.program.uses("seed") else None), study.program.seed
    return "train.seed", study.train.seed
