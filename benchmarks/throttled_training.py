"""Measure the gain of compression in training on slow links: every scheme compared with the baseline.

    python benchmarks/throttled_training.py [PART ...] [--out DIR] [--tiny] [--study FILE] [--set KEY=VALUE ...]
                                            [--shares 20 50 | --rates 100mbit ...] [--repeats N]
    python benchmarks/throttled_training.py --show FILE.json

A small GPT trains on virtual hosts whose links are limited (hpcbench.testing.hosts). The parts are `shared` (eight
ranks that share the cores, dp x tp x pp), `own` (two ranks with one core each), `tensor` (tensor parallelism across the
link), and `curve` (speed against the number of tokens per replica and step). By default, all parts are measured. In
each repeat, all schemes run one after the other in the same processes, in rotated order and with the same seed, and are
compared in pairs. Runs without a limit are measured as well, to separate the effects of link and processors.

With --out, each part is stored in DIR/throttled-training-PART.json after every repeat. An interrupted measurement
resumes from this file. The output is written next to this file, and the curve also as .svg and .png. File names include
the precision if it is not the default (--set train.precision=bf16).

Requires Linux, root or user namespaces, iproute2, and hpcbench[train,local,report]. The exit status is 2 if a
requirement is missing.
"""

import argparse
import sys
from pathlib import Path

from provenance import provenance
from throttled import curve
from throttled.compare import columns
from throttled.measure import Document, begin, load, measure, resume
from throttled.parts import PARTS, TINY, Part
from throttled.show import render
from throttled.start import run_files

from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.testing.hosts import why_not
from hpcbench.testing.hosts.rates import bits_per_second


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory of results, to resume a measurement")
    parser.add_argument("--tiny", action="store_true", help="the same in seconds; its numbers mean nothing")
    parser.add_argument("--study", type=Path, default=Path(__file__).with_suffix(".yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--shares", type=float, nargs="+", metavar="PERCENT", help="of the baseline's time")
    parser.add_argument("--rates", nargs="+", metavar="RATE", help="of the links, in place of what shares ask for")
    parser.add_argument("--repeats", type=int, help="in place of the study's")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print what was kept, and measure nothing")
    options = parser.parse_args()
    try:
        if options.show:
            show(load(options.show), None)
            return 0
        if unknown := [name for name in options.parts if name not in PARTS]:
            raise UserError(f"no part {unknown[0]!r}: use {', '.join(PARTS)}")
        if wrong := [share for share in options.shares or () if not 1 <= share <= 95]:
            raise UserError(f"--shares {wrong[0]:g}: give percents from 1 to 95")
        for rate in options.rates or ():
            bits_per_second(rate)
            if options.rates.count(rate) > 1:
                raise UserError(f"--rates: {rate} is listed twice: remove one")
        if options.repeats is not None and options.repeats < 1:
            raise UserError(f"--repeats {options.repeats}: give 1 or more")
        if reason := why_not():
            raise UserError(reason)
        for name in options.parts or PARTS:
            run_part(PARTS[name], options)
    except UserError as error:
        print(f"throttled_training: {error}", file=sys.stderr)
        return 2
    return 0


def run_part(part: Part, options: argparse.Namespace) -> None:
    """Measure or resume a part, and print its results."""
    settings = [*part.settings, *((*TINY, *part.tiny) if options.tiny else ()), *options.sets]
    if options.repeats:
        settings.append(f"repeats={options.repeats}")
    runs = run_files(options.study, settings, ranks_a_host=part.ranks_a_host, busy=options.tiny)
    fresh = begin(
        part,
        runs,
        provenance=provenance(Path(__file__)),
        settings=settings,
        shares=options.shares or (part.shares[-1:] if options.tiny else part.shares),
        rates=options.rates,
    )
    precision = runs[0]["train"]["precision"]
    path = None
    if options.out:
        if part.name == "curve":
            need_matplotlib("--out")
        options.out.mkdir(parents=True, exist_ok=True)
        tag = "" if precision == "fp32" else f"-{precision}"
        path = options.out / f"throttled-training-{part.name}{tag}.json"
    document = resume(path, fresh) if path else fresh
    measure(part, runs, document, path)
    show(document, path)


def show(document: Document, path: Path | None) -> None:
    """Print the results, and write them next to the measurement file."""
    text = render(document, [f"# {key}: {value}" for key, value in document["provenance"].items()])
    print(text, flush=True)
    columns_of_rates = columns(document)
    if path:
        path.with_suffix(".txt").write_text(text, encoding="utf-8")
        if curve.fits(columns_of_rates):
            for ending in (".svg", ".png"):
                curve.draw(columns_of_rates, document, path.with_suffix(ending))


if __name__ == "__main__":
    sys.exit(main())
