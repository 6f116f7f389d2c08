"""Measure the effect of compression on convergence: train the schemes of a study and compare the losses.

    python benchmarks/convergence.py [--study studies/convergence.yaml] [--set KEY=VALUE ...] [--out DIR] [--estimate]
                                     [--tiny]

The study runs on this machine. First, some steps of each scheme are timed, and the estimated duration is printed. If
the program or its jobs are interrupted, start the program again: completed runs are kept, and the others resume from
their checkpoints. At the end, the program prints the report, with a test that each scheme's validation loss is
equivalent to the baseline's. The loss curves are in the directory figures/ of the submission. Requires
hpcbench[train,local,report].
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from provenance import ROOT, head
from tiny import parse

from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity

TRIAL_STEPS = 8
"""Steps of the trial run. The last half is timed, after the freeze step of 1-bit Adam."""
TINY = [
    "train={steps: 6, warmup_steps: 2, global_batch: 4, micro_batch: 2, seq_len: 32, eval_samples: 4}",
    "layout={dp: 2}",
    "matrix.scheme=[baseline, naive-zfp8]",
    "repeats=1",
]


def hpcbench(*words: str) -> int:
    """Run a command of hpcbench, and return its exit status."""
    return subprocess.run([sys.executable, "-m", "hpcbench", *words]).returncode


def run_trial(run: dict[str, Any]) -> tuple[float, float]:
    """Measure a short run. Return the time of a step, and of everything else except evaluations, in seconds."""
    train = {**run["train"], "steps": TRIAL_STEPS, "warmup_steps": 1, "eval_every": 0, "checkpoint_every": 0}
    if train["freeze_step"]:
        train["freeze_step"] = TRIAL_STEPS // 2
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        path.write_text(json.dumps({**run, "train": train}))
        mpiexec = Path(sys.executable).with_name("mpiexec")
        command = [str(mpiexec), "-n", str(run["ranks"]), sys.executable, "-m", "hpcbench.train", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(f"the trial of {run['scheme']['name']} ended with {done.returncode}: {done.stderr[-400:]}")
    times = [float(text) for text in re.findall(r"^step .* time ([0-9.]+) s", done.stdout, re.MULTILINE)]
    (seconds,) = re.findall(r'"event": "end".*"seconds": ([0-9.]+)', done.stdout)
    return fmean(times[TRIAL_STEPS // 2 :]), float(seconds) - sum(times)


def estimate(study: Path, sets: list[str]) -> str:
    """Estimate the time of the study."""
    runs = expand(load_study(study, sets), Capacity("this machine", 1, 1024))
    files = [
        run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=study.parent) for run in runs
    ]
    of_scheme = {file["scheme"]["name"]: file for file in files}
    total, lines = 0.0, []
    for name, file in of_scheme.items():
        step, startup = run_trial(file)
        seconds = file["train"]["steps"] * step + startup
        count = sum(other["scheme"]["name"] == name for other in files)
        total += count * seconds
        lines.append(f"  {name}: {1e3 * step:.0f} ms a step, {seconds / 60:.1f} min a run, {count} runs")
    return "\n".join([*lines, f"{len(files)} runs: {total / 3600:.1f} h without evaluations"])


def find_newest(out: Path) -> Path | None:
    """Return the submission to resume."""
    return max((path for path in out.glob("[0-9][0-9][0-9]") if path.is_dir()), default=None)


def main() -> int:
    """Read the options, estimate the time, submit or resume the study, wait for it, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=ROOT / "studies/convergence.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--out", type=Path, help="by default results/STUDY")
    parser.add_argument("--estimate", action="store_true", help="say what it will take, and no more")
    options = parse(parser, sets=TINY)
    print(*head(Path(__file__)), sep="\n", flush=True)
    if options.tiny and not options.out:
        with tempfile.TemporaryDirectory() as directory:
            return carry_out(options, Path(directory))
    return carry_out(options, options.out or Path("results") / options.study.stem)


def carry_out(options: argparse.Namespace, out: Path) -> int:
    """Run the benchmark with these options, in the directory of the submissions."""
    submission = find_newest(out)
    try:
        if submission is None or options.estimate:
            print(estimate(options.study, options.sets), flush=True)
    except UserError as error:
        print(f"convergence: {error}", file=sys.stderr)
        return 2
    if options.estimate:
        return 0
    if submission is None:
        settings = [word for each in options.sets for word in ("--set", each)]
        status = hpcbench("submit", str(options.study), "--site", "local", "--out", str(out), "--wait", *settings)
        submission = find_newest(out)
    else:
        status = hpcbench("retry", str(submission), "--all") or hpcbench("status", str(submission), "--watch")
    if submission is None or status > 1:
        return status
    return hpcbench("report", str(submission), "--tables", "loss", "--plots", str(submission / "figures")) or status


if __name__ == "__main__":
    sys.exit(main())
