"""Measure how well estimates from one short run rank schemes by the loss that they cause.

    python benchmarks/loss_ranking.py [--studies NAME[=REPORT] ...] [--steps 40 80] [--json FILE] [--stored FILE]
                                      [--all] [--tiny]

NAME is a study in studies/, and REPORT its report as JSON, relative to results/reference. Without a report, the schemes
are trained here, one after another in the same processes. A short baseline run of each study measures the effect of
each codec on each kind of traffic (train.codec_effects). A scheme's estimate is the sum of the effects on its traffic.
Estimates are compared with the measured differences in validation loss.

error: the mean square error on Gaussian values. constants: the same error, multiplied by a constant for each dimension.
loss: the change of the loss of the same step, which only forward traffic and weights change. descent: the first-order
change of the loss by the changed weight update. loss and descent: their sum. update: the square of the change of the
weight update, relative to the square of the update.

rho is Spearman's rank correlation. `all` correlates the ranks within the studies, scaled to the range from 0 to 1.
Intervals (95 %) come from a bootstrap over schemes and the uncertainty of the measured losses. Lossless schemes are
left out, and schemes for which the error of a codec on the values is not the error of their messages: with error
feedback, differences or mixed widths. `--all` leaves out only those with error feedback. `--stored` reads the effects
and the losses from a file that `--json` wrote, instead of running. Requires hpcbench[train,bench].
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from provenance import ROOT, head, provenance
from rich.table import Table
from scipy import stats
from tiny import parse

from hpcbench.codecs import spec
from hpcbench.console import show_table
from hpcbench.contract.run import load
from hpcbench.contract.traffic import list_live_traffic
from hpcbench.errors import UserError
from hpcbench.features.effects.events import CodecEffectsMeasured
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity
from hpcbench.tune.losses import SENSITIVITY, measure_error

REFERENCE = ROOT / "results/reference"
STUDIES = [
    "convergence=convergence/report.json",
    "convergence-where=convergence/where.json",
    "convergence-experts=convergence/experts.json",
    "convergence-ranked",
]
ESTIMATES = ("error", "constants", "loss", "descent", "loss and descent", "update")
DRAWS = 2000
WORKER = "worker"
"""First argument of the processes that train."""
TINY = [
    "train={steps: 6, warmup_steps: 2, global_batch: 4, micro_batch: 2, seq_len: 32, eval_samples: 4}",
    "layout={dp: 2}",
    "matrix.scheme=[baseline, dp-int4, zero-int4, all-zfp8]",
    "repeats=2",
]


class Scheme(NamedTuple):
    """A scheme with its measured loss and estimates."""

    name: str
    difference: float
    """Loss minus the baseline's loss."""
    error: float
    """Standard error of the difference."""
    freedom: int
    estimates: dict[str, float]


Codecs = dict[str, dict[str, str]]
"""Lossy codec of each traffic, keyed by scheme."""
Effects = Mapping[tuple[str, str], Mapping[str, Any]]
"""Effects keyed by traffic and codec."""


def read_losses(report: Path) -> dict[str, dict[str, float]]:
    """Read the loss differences of a report's only cell, keyed by scheme."""
    (submission,) = json.loads(report.read_text())["submissions"]
    (cell,) = submission["cells"]
    return {each["scheme"]: each["loss_difference"] for each in cell["schemes"] if each["loss_difference"]}


def train_schemes(study: Path, sets: list[str]) -> dict[str, dict[str, float]]:
    """Train all schemes of a study in one group of processes. Return the loss differences, keyed by scheme."""
    loaded = load_study(study, sets)
    runs = expand(loaded, Capacity("this machine", 1, 1024))
    files = [
        run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=study.parent) for run in runs
    ]
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for k, file in enumerate(files):
            paths.append(Path(directory) / f"run-{k}.json")
            paths[-1].write_text(json.dumps(file))
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        command = [mpiexec, "-n", str(files[0]["ranks"]), sys.executable, __file__, WORKER, *map(str, paths)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    losses = [json.loads(line)["loss"] for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(losses) != len(files):
        raise UserError(f"{loaded.study.study}: only {len(losses)} of {len(files)} runs completed")
    by_scheme: dict[str, dict[int, float]] = {}
    for run, loss in zip(runs, losses, strict=True):
        by_scheme.setdefault(run.scheme_name, {})[run.repeat] = loss
    baseline = by_scheme[loaded.study.baseline.scheme]
    differences = {}
    for name, by_repeat in by_scheme.items():
        values = [loss - baseline[repeat] for repeat, loss in by_repeat.items()]
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        mean = fmean(values)
        differences[name] = {"estimate": mean, "low": mean - half, "high": mean + half, "pairs": len(values)}
    return differences


def work(paths: Sequence[str]) -> None:
    """Train one run after another on this rank, and print their validation losses as JSON lines."""
    from mpi4py import MPI

    from hpcbench.comm.progress import Progress
    from hpcbench.comm.wait import Wait
    from hpcbench.train import text
    from hpcbench.train.trainer import Trainer

    comm, progress, corpus = MPI.COMM_WORLD, Progress(Wait.GIVE_WAY, background=True), None
    for path in paths:
        run, _ = load(Path(path))
        corpus = corpus or text.load_shared(comm, progress, run.data, run.train.seq_len, run.model.vocab)
        trainer = Trainer(run, comm.Dup(), progress, corpus)
        for step in range(run.train.steps):
            trainer.step(step)
        loss, _ = trainer.evaluate()
        trainer.mesh.free()
        if comm.rank == 0:
            print(json.dumps({"scheme": run.scheme.name, "loss": loss}), flush=True)


def prepare(
    study: Path, names: Sequence[str], steps: Sequence[int], sets: list[str], *, every_scheme: bool = False
) -> tuple[dict[str, Any], Codecs]:
    """Return the baseline's run file, which measures all codecs of the schemes, and the codecs of the schemes."""
    loaded = load_study(study, sets)
    runs = {run.scheme_name: run for run in expand(loaded, Capacity("this machine", 1, 1024)) if run.repeat == 1}
    base = loaded.study.baseline.scheme
    file = run_file(runs[base], site="local", threads=1, oversubscribe=True, device="cpu", base=study.parent)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        path.write_text(json.dumps(file))
        traffic = list_live_traffic(load(path)[0].setting)
    used: Codecs = {}
    for name in names:
        if name != base and name in runs:
            scheme = runs[name].scheme
            treatments = {each: scheme.treatment(each) for each in traffic}
            usual = {each: runs[base].scheme.treatment(each).codec for each in traffic}
            approximated = any(each.depends_on_past or each.mixed_bits for each in treatments.values())
            if not any(each.keeps_errors for each in treatments.values()) and (every_scheme or not approximated):
                used[name] = {
                    " ".join(each): treatment.codec
                    for each, treatment in treatments.items()
                    if treatment.codec != usual[each] and spec.parse(treatment.codec).lossless is not True
                }
    used = {name: codecs for name, codecs in used.items() if codecs}
    codecs = sorted({codec for each in used.values() for codec in each.values()})
    train = {**file["train"], "eval_every": 0, "checkpoint_every": 0, "eval_samples": 4}
    train["codec_effects"] = {"steps": list(steps), "codecs": codecs}
    return {**file, "train": train}, used


def run_baseline(file: dict[str, Any]) -> Effects:
    """Train until the last measured step, and return the means of the effects over the steps."""
    last = file["train"]["codec_effects"]["steps"][-1]
    taken: dict[tuple[str, str], dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        path.write_text(json.dumps(file))
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        command = [mpiexec, "-n", str(file["ranks"]), sys.executable, "-m", "hpcbench.train", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
            assert process.stdout
            steps = set()
            for line in process.stdout:
                event = CodecEffectsMeasured.from_line(line) if line.startswith(CodecEffectsMeasured.begin()) else None
                for effect in (event and event.effects) or ():
                    values = taken.setdefault((effect.traffic or "", effect.codec or ""), {})
                    for name in ("loss", "update", "descent"):
                        values.setdefault(name, []).append(_or_nan(getattr(effect, name)))
                steps |= {event.step} if event else set()
                if last in steps:
                    (Path(directory) / "stop").touch()
    if last not in steps:
        raise UserError(f"{file['study']}: the baseline ended before step {last}")
    return {
        key: {
            "loss": fmean(values["loss"]),
            "descent": fmean(values["descent"]),
            "update": fmean(each**2 for each in values["update"]),
        }
        for key, values in taken.items()
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def estimate(codecs: Mapping[str, str], effects: Effects) -> dict[str, float]:
    """Return the estimates for a scheme with these codecs, keyed by traffic."""
    dimensions = [traffic.split()[0] for traffic, _ in effects]
    kinds = {each: len({t for t, _ in effects if t.split()[0] == each}) for each in dimensions}
    sums = dict.fromkeys(ESTIMATES, 0.0)
    for traffic, codec in codecs.items():
        dimension = traffic.split()[0]
        sensitivity = SENSITIVITY["TP" if dimension == "SP" else dimension]
        sums["error"] += measure_error(codec)
        sums["constants"] += sensitivity * measure_error(codec) / kinds[dimension]
        for name in ("loss", "descent", "update"):
            sums[name] += effects[traffic, codec][name]
    sums["loss and descent"] = sums["loss"] + sums["descent"]
    return sums


def correlate(studies: Sequence[Sequence[Scheme]], name: str, losses: Sequence[Sequence[float]]) -> float:
    """Return the rank correlation of an estimate with the losses within the studies, or NaN without variation."""
    pairs: list[tuple[float, float]] = []
    for schemes, each in zip(studies, losses, strict=True):
        if len(schemes) > 1:
            ranks = (stats.rankdata(values) for values in ([s.estimates[name] for s in schemes], each))
            pairs += zip(*((rank - 1) / (len(schemes) - 1) for rank in ranks), strict=True)
    x, y = np.array(pairs).T if pairs else (np.zeros(1), np.zeros(1))
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else math.nan


def bound(studies: Sequence[Sequence[Scheme]], name: str) -> tuple[float, float, float]:
    """Return the correlation, and the bounds of its interval."""
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(DRAWS):
        picks = [[schemes[i] for i in random.integers(len(schemes), size=len(schemes))] for schemes in studies]
        losses = [[s.difference + s.error * random.standard_t(s.freedom) for s in schemes] for schemes in picks]
        drawn.append(correlate(picks, name, losses))
    defined = [each for each in drawn if not math.isnan(each)] or [math.nan]
    low, high = map(float, np.quantile(defined, (0.025, 0.975)))
    return correlate(studies, name, [[s.difference for s in schemes] for schemes in studies]), low, high


def make_schemes(losses: Mapping[str, Mapping[str, float]], used: Codecs, effects: Effects) -> list[Scheme]:
    """Combine measured losses and estimates."""
    schemes = []
    for name, codecs in used.items():
        loss, freedom = losses[name], round(losses[name]["pairs"]) - 1
        error = (loss["high"] - loss["low"]) / 2 / stats.t.ppf(0.975, freedom)
        schemes.append(Scheme(name, loss["estimate"], float(error), freedom, estimate(codecs, effects)))
    return schemes


def show(studies: Mapping[str, Sequence[Scheme]]) -> dict[str, Any]:
    """Print the correlations and the schemes. Return the correlations over all studies with their intervals."""
    table = Table(title="Spearman's rank correlation of estimates and measured loss differences")
    table.add_column("estimate")
    for name, schemes in studies.items():
        table.add_column(f"{name} ({len(schemes)})", justify="right")
    table.add_column(f"all ({sum(map(len, studies.values()))})", justify="right")
    pooled = {}
    for name in ESTIMATES:
        each = [bound([schemes], name) for schemes in studies.values()]
        pooled[name] = bound(list(studies.values()), name)
        table.add_row(name, *(f"{rho:.2f} ({low:.2f} to {high:.2f})" for rho, low, high in (*each, pooled[name])))
    show_table(table)
    table = Table(title="Schemes")
    for name in ("study", "scheme", "loss difference", "s.e.", *ESTIMATES):
        table.add_column(name, justify="left" if name in ("study", "scheme") else "right")
    for study, schemes in studies.items():
        for s in sorted(schemes, key=lambda s: s.difference):
            numbers = (f"{s.estimates[name]:.2g}" for name in ESTIMATES)
            table.add_row(study, s.name, f"{s.difference:+.4f}", f"{s.error:.4f}", *numbers)
    show_table(table)
    return {name: {"rho": rho, "low": low, "high": high} for name, (rho, low, high) in pooled.items()}


def main() -> int:
    """Run, compare, and print."""
    if sys.argv[1:2] == [WORKER]:
        work(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", nargs="+", default=STUDIES, metavar="NAME[=REPORT]")
    parser.add_argument("--steps", type=int, nargs="+", default=[40, 80])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stored", type=Path)
    parser.add_argument("--all", action="store_true", help="schemes with differences or mixed widths as well")
    options = parse(parser, studies=STUDIES[3:], steps=[2, 4])
    print("\n".join(head(Path(__file__), ["scipy"])), end="\n\n", flush=True)
    stored = json.loads(options.stored.read_text())["studies"] if options.stored and options.stored.exists() else {}
    studies, measured, sets = {}, {}, TINY if options.tiny else []
    try:
        for name, _, report in (each.partition("=") for each in options.studies):
            path = ROOT / "studies" / f"{name}.yaml"
            if report:
                losses = read_losses(REFERENCE / report)
            else:
                losses = stored[name]["losses"] if name in stored else train_schemes(path, sets)
            file, used = prepare(path, list(losses), options.steps, sets, every_scheme=options.all)
            if name in stored:
                effects: Effects = {(each["traffic"], each["codec"]): each for each in stored[name]["effects"]}
            else:
                effects = run_baseline(file)
            shown = [{"traffic": traffic, "codec": codec, **each} for (traffic, codec), each in effects.items()]
            measured[name] = {"losses": losses, "effects": shown}
            studies[name] = make_schemes(losses, used, effects)
            if options.json:
                write(options.json, measured, {})
    except UserError as error:
        print(f"loss_ranking: {error}", file=sys.stderr)
        return 2
    correlations = show(studies)
    if options.json:
        write(options.json, measured, correlations)
    return 0


def write(path: Path, measured: Mapping[str, Any], correlations: Mapping[str, Any]) -> None:
    """Write the measurements, from which `--stored` continues."""
    content = {"provenance": provenance(Path(__file__), ["scipy"]), "correlations": correlations, "studies": measured}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
