"""Train unchanged programs over slow links, with codecs of hpcbench and with options of other systems.

    python benchmarks/slow_programs.py [PROGRAM...] [--repeats N] [--out DIR] [--json DIR] [--tiny]

Each rank is a virtual host behind a link of 100 Mbit/s. ddp and fsdp: four ranks train a small GPT with DDP and FSDP2.
They run without hpcbench, with hpcbench's algorithm alone, with bf16, with int8, and with int8 where the automatic
choice selects int8. systems: two ranks with DDP, compared with PyTorch's own hooks. deepspeed: two ranks with ZeRO 1
and 3, compared with communication_data_type (needs hpcbench[frameworks]). The default is ddp and fsdp.

Requires Linux, root or user namespaces, iproute2, and hpcbench[torch,local]. The exit status is 2 if a requirement is
missing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from provenance import ROOT, head, provenance
from tiny import parse

from hpcbench.errors import UserError
from hpcbench.testing.hosts import why_not

STUDIES = {
    "ddp": "program-slow-links-ddp",
    "fsdp": "program-slow-links-fsdp",
    "systems": "program-systems",
    "deepspeed": "program-deepspeed",
}
TINY = ("nodes=1", "ranks_per_node=2", "matrix.scheme=[baseline, identity, naive-int8]", "program.groups.min_bytes=0")
"""Settings that run the same code in seconds."""


def hpcbench(*words: str) -> str:
    """Return the output of a command.

    Raises
    ------
    UserError
        The command failed.
    """
    done = subprocess.run([sys.executable, "-m", "hpcbench", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).split())[-400:]
        raise UserError(f"hpcbench {' '.join(words)}: exit status {done.returncode}: {last}")
    return done.stdout


def store_runs(submission: Path, target: Path) -> None:
    """Write the values of each run of a submission, with their provenance, as JSON."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hpcbench("report", str(submission), "--output", str(target))
    document = {"provenance": provenance(Path(__file__)), **json.loads(target.read_text(encoding="utf-8"))}
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="|".join(STUDIES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--site", default="virtual-hosts", help="another site with slow links")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="DIR")
    options = parse(parser, programs=["ddp"], repeats=1, site="local")
    sets = [f"repeats={options.repeats}", *(TINY if options.tiny else ())]
    try:
        if wrong := [name for name in options.programs if name not in STUDIES]:
            raise UserError(f"no program {wrong[0]!r}: use {', '.join(STUDIES)}")
        if options.site == "virtual-hosts" and (reason := why_not()):
            raise UserError(reason)
        print(*head(Path(__file__)), sep="\n", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            for name in options.programs or ("ddp", "fsdp"):
                study = ROOT / "studies" / f"{STUDIES[name]}.yaml"
                where = (options.out or Path(temporary)) / name
                changes = [word for setting in sets for word in ("--set", setting)]
                hpcbench("submit", str(study), "--site", options.site, "--out", str(where), "--wait", *changes)
                print(
                    "", hpcbench("report", str(where), "--tables", "speed,loss,traffic,network"), sep="\n", flush=True
                )
                if options.json:
                    store_runs(where, options.json / f"slow-programs-{name}.json")
    except UserError as error:
        print(f"slow_programs: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
