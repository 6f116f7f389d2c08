"""Time a dry run with 1,000 and 10,000 job scripts, compared with ReFrame and JUBE.

    python benchmarks/dry_run.py [--reframe PATH] [--jube PATH] [--sizes 100 1000 10000] [--peers-up-to 1000]
                                 [--tiny]

Each tool writes one Slurm script per run (two nodes with four ranks each) without submitting it. hpcbench uses `submit
--dry-run`, which also writes the settings of each run and checks them against site and queue. ReFrame uses `--dry-run`
with a parameterized test. JUBE uses a step that substitutes values into a copied script. Start-up is measured as the
time with one run. Times are the wall-clock and processor times of the whole command. Each time is the minimum over
interleaved turns. Install ReFrame with `pip install reframe-hpc`, and JUBE from its web page. If a tool is not
installed, its row says so.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provenance import head
from rich.console import Console
from shared import make_table
from tiny import parse

from hpcbench.console import columns

STUDY = """\
study: dry
site: {site}
model: gpt-tiny
train: {{steps: 20, warmup_steps: 2, global_batch: 64}}
layout: {{tp: 4}}
nodes: 2
walltime: 2h
account: none
pairing: none
matrix: {{scheme: [{schemes}]}}
repeats: {repeats}
"""
SITE = """\
site: bench
scheduler: {kind: slurm}
queues: {gpu: {}}
node: {gpus: 4, cores: 32}
launcher: {kind: srun}
device: cuda
python: python3
checked: never
"""
SCHEMES = [
    "baseline",
    "identity",
    "naive-mpc",
    "naive-zfp8",
    "naive-zfp16",
    "mzhybrid",
    "zhybrid-16-8",
    "zhybrid-24-8",
    "naive-int8",
    "naive-xpk",
]
REFRAME_CONFIG = """\
site_configuration = {
    "systems": [{
        "name": "cluster",
        "hostnames": [".*"],
        "partitions": [{
            "name": "gpu",
            "scheduler": "slurm",
            "launcher": "srun",
            "environs": ["builtin"],
            "access": ["--partition=gpu"],
        }],
    }],
    "environments": [{"name": "builtin"}],
    "general": [{"remote_detect": False}],
}
"""
REFRAME_TEST = """\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Train(rfm.RunOnlyRegressionTest):
    scheme = parameter({schemes!r})
    repeat = parameter(range({repeats}))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "python3"
    num_tasks = 8
    num_tasks_per_node = 4
    time_limit = "2h"

    @run_after("init")
    def arguments(self):
        self.executable_opts = ["-u", "-m", "hpcbench.train", f"runs/r{{self.repeat}}-{{self.scheme}}/run.json"]

    @sanity_function
    def ended(self):
        return sn.assert_found("end", self.stdout)
"""
JUBE_BENCHMARK = """\
name: dry
outpath: out
parameterset:
  - name: runs
    parameter:
      - {{name: scheme, _: "{schemes}"}}
      - {{name: repeat, type: int, mode: python, _: "','.join(str(i) for i in range({repeats}))"}}
fileset:
  name: files
  copy: job.sh.in
substituteset:
  name: values
  iofile: {{in: job.sh.in, out: job.sh}}
  sub:
    - {{source: "#SCHEME#", dest: $scheme}}
    - {{source: "#REPEAT#", dest: $repeat}}
step:
  name: render
  use: [runs, files, values]
"""
JUBE_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=r#REPEAT#-#SCHEME#
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --time=02:00:00
#SBATCH --partition=gpu
srun python3 -u -m hpcbench.train runs/r#REPEAT#-#SCHEME#/run.json
"""


@dataclass(frozen=True)
class Tool:
    """A tool that renders `runs` scripts in a directory.

    `prepare` returns the command and a pattern of the scripts' paths.
    """

    name: str
    prepare: Callable[[Path, int], tuple[list[str], str]] | None
    """None if the tool is not installed."""


def split(runs: int) -> tuple[list[str], int]:
    """Return the schemes and the number of repeats of a study with `runs` runs."""
    return (SCHEMES, runs // len(SCHEMES)) if runs >= len(SCHEMES) else (SCHEMES[:1], runs)


def hpcbench(directory: Path, runs: int) -> tuple[list[str], str]:
    """Write a study and a site for hpcbench."""
    schemes, repeats = split(runs)
    (directory / "site.yaml").write_text(SITE)
    study = STUDY.format(site=directory / "site.yaml", schemes=", ".join(schemes), repeats=repeats)
    (directory / "study.yaml").write_text(study)
    command = [sys.executable, "-m", "hpcbench", "submit", "study.yaml", "--dry-run", "--out", "out"]
    return command, "out/001/jobs/*/job.sh"


def reframe(program: str) -> Callable[[Path, int], tuple[list[str], str]]:
    """Return a function that writes a test for ReFrame."""

    def prepare(directory: Path, runs: int) -> tuple[list[str], str]:
        schemes, repeats = split(runs)
        (directory / "config.py").write_text(REFRAME_CONFIG)
        (directory / "runs.py").write_text(REFRAME_TEST.format(schemes=schemes, repeats=repeats))
        return [program, "-C", "config.py", "-c", "runs.py", "--dry-run", "--prefix", "out"], "out/**/rfm_job.sh"

    return prepare


def jube(program: str) -> Callable[[Path, int], tuple[list[str], str]]:
    """Return a function that writes a benchmark for JUBE."""

    def prepare(directory: Path, runs: int) -> tuple[list[str], str]:
        schemes, repeats = split(runs)
        (directory / "runs.yaml").write_text(JUBE_BENCHMARK.format(schemes=",".join(schemes), repeats=repeats))
        (directory / "job.sh.in").write_text(JUBE_SCRIPT)
        return [program, "run", "runs.yaml"], "out/000000/*/work/job.sh"

    return prepare


def measure(tool: Tool, runs: int) -> tuple[float, float]:
    """Return the wall-clock and processor time of one rendering in seconds. Check that all scripts exist."""
    assert tool.prepare
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command, scripts = tool.prepare(directory, runs)
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, env={**os.environ})
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        times = len(list(directory.glob(scripts)))
        if done.returncode or times != runs:
            raise SystemExit(f"{tool.name}: {times} of {runs} scripts, exit {done.returncode}:\n{done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reframe", default=shutil.which("reframe"), help="ReFrame's program")
    parser.add_argument("--jube", default=shutil.which("jube"), help="JUBE's program")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10000], help="runs to render")
    parser.add_argument("--peers-up-to", type=int, default=1000, help="most runs for ReFrame and JUBE")
    parser.add_argument("--repeats", type=int, default=3, help="turns up to 100 runs; one beyond")
    options = parse(parser, sizes=[10], repeats=1)
    tools = [
        Tool("hpcbench", hpcbench),
        Tool("ReFrame", reframe(options.reframe) if options.reframe else None),
        Tool("JUBE", jube(options.jube) if options.jube else None),
    ]
    print(*head(Path(__file__), ["reframe-hpc", "jube"]), sep="\n", flush=True)
    console = Console(width=columns(), highlight=False)
    table = make_table("runs", "tool", "wall s", "processor s", "ms a run", "x hpcbench", left=("tool",), bold=True)
    for runs in [1, *options.sizes]:
        taking = [tool for tool in tools if tool.name == "hpcbench" or runs <= options.peers_up_to]
        best: dict[str, tuple[float, float]] = {}
        for _ in range(options.repeats if runs <= 100 else 1):
            for tool in filter(lambda tool: tool.prepare, taking):
                times = measure(tool, runs)
                best[tool.name] = min(best.get(tool.name, times), times)
                print(f"{runs} runs, {tool.name}: {times[0]:.2f} s", file=sys.stderr)
        for tool in taking:
            if not tool.prepare:
                table.add_row(str(runs), tool.name, "not installed", *["-"] * 3)
                continue
            wall, processor = best[tool.name]
            ratio = f"{wall / best['hpcbench'][0]:.1f}"
            table.add_row(str(runs), tool.name, f"{wall:.2f}", f"{processor:.2f}", f"{wall / runs * 1e3:.2f}", ratio)
    console.print(table)


if __name__ == "__main__":
    main()
