"""Compare the choices of `hpcbench tune` with complete tables of real runs, which the tuner does not see.

    python benchmarks/tuned_demonstrations.py [CASE ...] [--most 24] [--repeats 5] [--work DIR] [--out DIR] [--dry-run]
    python benchmarks/tuned_demonstrations.py --tiny

A case is a study on a site: training over links of 100 Mbit/s (`slow`) and 1 Gbit/s (`faster`), tensor parallelism over
a link (`tensor`), shared memory (`shared`), and an unchanged DDP script (`program`). First, the tuner searches. Then, a
study measures a table of the baseline and the `--most` candidates with the shortest predicted time. `on front`: no
scheme in the table is faster at the same or a lower loss, by the estimates. `excess`: additional time of the chosen
scheme, relative to the fastest scheme in the table whose loss is within the budget, with the 95 % interval over the
repeats. The fastest of several equally fast schemes appears faster than it is, so that the excess is too high.

After an interruption, repeat the command to resume. The result of each case is stored as DIR/CASE.json. --dry-run and
--tiny only show the plan of each search and the size of each table. Real measurements need an otherwise idle machine.
Needs Linux, root or user namespaces, iproute2, and hpcbench[train,local].
"""

import argparse
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenance import head, provenance
from rich.table import Table
from tiny import parse

from hpcbench.collect.find import jobs_of
from hpcbench.collect.submission import load
from hpcbench.console import show_table
from hpcbench.report.measures import measure
from hpcbench.report.statistics import Interval, paired_ratio
from hpcbench.tune.candidates import DIMENSIONS, make_scheme
from hpcbench.tune.results import list_front
from hpcbench.tune.rounds import read_outcome, submit_once
from hpcbench.tune.standings import RaceRules, RunOutcome, Standings

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 0.01
LINKS = ROOT / "sites" / "virtual-hosts.yaml"
LONGER = ("train.steps=60", "train.warmup_steps=6")
BRIEF = ("train.steps=24", "train.warmup_steps=4")
"""With tensor parallelism, a step sends several times as many bytes."""


@dataclass(frozen=True)
class Demonstration:
    """A study on a site."""

    study: str
    rate: str | None
    """Rate of the links between virtual hosts, or None for shared memory."""
    sets: tuple[str, ...] = ()


CASES = {
    "slow": Demonstration("studies/demo.yaml", "100mbit", LONGER),
    "faster": Demonstration("studies/demo.yaml", "1gbit", LONGER),
    "tensor": Demonstration("studies/demo.yaml", "100mbit", (*BRIEF, "layout={dp: 1, tp: 2}")),
    "shared": Demonstration("studies/demo.yaml", None, (*LONGER, "nodes=1", "ranks_per_node=2")),
    "program": Demonstration("studies/program-slow-links-ddp.yaml", "100mbit"),
}


def write_site(case: Demonstration, directory: Path) -> str:
    """Return the site of a case. If the rate differs from the shipped file, write the site to `directory`."""
    if case.rate is None:
        return "local"
    path = directory / "virtual-hosts.yaml"
    gbit = {"100mbit": "0.1", "1gbit": "1"}[case.rate]
    text = LINKS.read_text(encoding="utf-8").replace("[--rate, 100mbit]", f"[--rate, {case.rate}]")
    path.write_text(text.replace("bandwidth_gbit: 0.1", f"bandwidth_gbit: {gbit}"), encoding="utf-8")
    return str(path)


def tune(case: Demonstration, site: str, directory: Path, max_runs: int, *, dry_run: bool) -> dict[str, Any]:
    """Search with the command that users run, and return the content of the result."""
    result = directory / ("plan.json" if dry_run else "search/tuned.json")
    command = [sys.executable, "-m", "hpcbench", "tune", str(ROOT / case.study), f"--loss-budget={BUDGET}"]
    command += [f"--max-runs={max_runs}", f"--site={site}", f"--out={directory / 'search'}"]
    command += [f"--set={each}" for each in case.sets]
    subprocess.run([*command, *(["--dry-run", f"--output={result}"] if dry_run else [])], check=True)
    content: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return content


def list_schemes(tuned: Mapping[str, Any], most: int) -> dict[str, str | None]:
    """Return the schemes of the table except the baseline: names, and definitions of schemes that are not presets."""
    ranked = sorted(tuned["candidates"], key=lambda each: each["seconds"])
    chosen = None if tuned["choice"] is None else tuned["choice"]["scheme"]
    schemes: dict[str, str | None] = {}
    for i, each in enumerate(ranked):
        if i < most or each["scheme"] in (chosen, "naive-bf16", "naive-int8"):
            codecs = {dimension: codec for dimension, codec in each["codecs"].items() if dimension in DIMENSIONS}
            is_preset = not codecs or each["scheme"].startswith("naive-")
            definition = None if is_preset else make_scheme(codecs).model_dump_json(exclude_defaults=True)
            schemes[each["scheme"]] = definition
    return schemes


def measure_table(
    case: Demonstration, site: str, schemes: Mapping[str, str | None], repeats: int, base: Path
) -> list[dict[str, RunOutcome]]:
    """Run the table, and return the outcomes of each repeat."""
    sets = [*case.sets, f"matrix.scheme={json.dumps(['baseline', *schemes])}", f"repeats={repeats}"]
    sets += [f"schemes.{name}={definition}" for name, definition in schemes.items() if definition is not None]
    root = submit_once(ROOT / case.study, site, sets, base)
    subprocess.run([sys.executable, "-m", "hpcbench", "status", "--watch", str(root)], check=False)
    outcomes: dict[int, dict[str, RunOutcome]] = defaultdict(dict)
    for run in load(root, jobs_of(root)).runs:
        if run.repeat is not None:
            outcomes[run.repeat][run.scheme] = read_outcome(measure(run))
    return [outcomes[repeat] for repeat in sorted(outcomes)]


def compare(tuned: Mapping[str, Any], rounds: Sequence[Mapping[str, RunOutcome]]) -> dict[str, Any]:
    """Compare the choice with the table. If the search found that nothing can pay, the choice is the baseline."""
    schemes = list(dict.fromkeys(name for each in rounds for name in each if name != "baseline"))
    standings = Standings(schemes, rounds, RaceRules("baseline", BUDGET))
    gains = {"baseline": 0.0}
    losses = {"baseline": 0.0}
    for name, each in standings.standings.items():
        if each.gain is not None and each.loss is not None and not each.failed:
            gains[name], losses[name] = each.gain.estimate, each.loss.estimate
    best = max((name for name in gains if losses[name] <= BUDGET), key=lambda name: gains[name])
    choice = tuned["choice"] or {"scheme": "baseline", "confirmed": False}
    chosen = choice["scheme"]
    excess = _compare_times(rounds, chosen, best)
    return {
        "choice": chosen,
        "confirmed": choice["confirmed"],
        "runs": tuned["runs"],
        "table_runs": sum(map(len, rounds)),
        "best": best,
        "on_front": chosen in list_front(standings),
        "excess": excess
        and {"estimate": excess.estimate - 1, "low": _minus_1(excess.low), "high": _minus_1(excess.high)},
        "loss": losses.get(chosen),
        "table": {name: {"gain": math.expm1(gains[name]), "loss": losses[name]} for name in gains},
    }


def _compare_times(rounds: Sequence[Mapping[str, RunOutcome]], scheme: str, other: str) -> Interval | None:
    """Return the ratio of the times of two schemes, or None without a common round."""
    both = [(each[scheme], each[other]) for each in rounds if scheme in each and other in each]
    pairs = [(mine.seconds, yours.seconds) for mine, yours in both if mine.seconds and yours.seconds]
    return paired_ratio(*zip(*pairs, strict=True)) if pairs else None


def _minus_1(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def _format_excess(excess: Mapping[str, float | None] | None) -> str:
    if excess is None:
        return "-"
    low, high = ("?" if each is None else f"{100 * each:.1f}" for each in (excess["low"], excess["high"]))
    return f"{100 * (excess['estimate'] or 0.0):.1f} % ({low} to {high})"


def main() -> None:
    """Run or plan the cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; by default all")
    parser.add_argument("--max-runs", type=int, default=12, help="of the tuner")
    parser.add_argument("--most", type=int, default=24, help="schemes of the table")
    parser.add_argument("--repeats", type=int, default=5, help="of the table")
    parser.add_argument("--work", type=Path, default=Path("results/tuned-demonstrations"))
    parser.add_argument("--out", type=Path, default=Path("results/reference/tune"))
    parser.add_argument("--dry-run", action="store_true")
    options = parse(parser, cases=["program"], dry_run=True)
    if unknown := [name for name in options.cases if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}: use {', '.join(CASES)}")
    print("\n".join(head(Path(__file__))), end="\n\n", flush=True)
    table = Table(title=f"Choices of the tuner with a loss budget of {100 * BUDGET:g} %")
    for name in ("case", "choice", "confirmed", "runs", "table's runs", "on front", "excess"):
        table.add_column(name, justify="left" if name in ("case", "choice") else "right")
    for name in options.cases or CASES:
        case, directory = CASES[name], options.work.absolute() / name
        directory.mkdir(parents=True, exist_ok=True)
        site = write_site(case, directory)
        tuned = tune(case, site, directory, options.max_runs, dry_run=options.dry_run)
        schemes = list_schemes(tuned, options.most)
        if options.dry_run:
            table.add_row(name, "-", "-", f"{options.max_runs}", f"{(len(schemes) + 1) * options.repeats}", "-", "-")
            continue
        rounds = measure_table(case, site, schemes, options.repeats, directory / "table")
        result = compare(tuned, rounds)
        options.out.mkdir(parents=True, exist_ok=True)
        document = {"provenance": provenance(Path(__file__)), "case": name, **result}
        (options.out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        confirmed, on_front = ("yes" if result[key] else "no" for key in ("confirmed", "on_front"))
        runs = (str(result["runs"]), str(result["table_runs"]))
        table.add_row(name, result["choice"], confirmed, *runs, on_front, _format_excess(result["excess"]))
    show_table(table)


if __name__ == "__main__":
    main()
