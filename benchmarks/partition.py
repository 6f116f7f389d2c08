"""Time the partitioner on models of 24 to 96 layers and 16 to 64 ranks, with one and with two levels of links.

    python benchmarks/partition.py [--tiny]

All layers of the chain except the first and the last are identical, as in a transformer; in `random` all layers differ.
With a memory limit, a rank can hold a fifth of the model and its states, or only a hundredth, so that no division fits.
The minimum of three runs is printed.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.console import columns
from hpcbench.predict.partition.chain import ChainLayer, LayerChain, LinkLevel, Setting
from hpcbench.predict.partition.solve import find_best_cut


def make_transformer(layers: int) -> LayerChain:
    """Return identical blocks between the embedding and the head."""
    block = ChainLayer(0.01, 1e7, 1e6, 1e6, 1e7, 4e7)
    ends = ChainLayer(0.0105, 1.5e7, 1e6, 1e6, 1.5e7, 6e7), ChainLayer(0.03, 1.5e7, 0.0, 2e6, 1.5e7, 6e7)
    return LayerChain([ends[0], *[block] * (layers - 2), ends[1]])


def make_random(layers: int) -> LayerChain:
    """Return layers that are all different."""
    draw = random.Random(layers).uniform
    return LayerChain(
        [ChainLayer(draw(0.005, 0.02), draw(1e6, 1e7), draw(1e5, 1e6), 1e6, 1e7, 4e7) for _ in range(layers)]
    )


def main() -> int:
    """Measure and print, and return the exit status."""
    parser = argparse.ArgumentParser(description="How long the partitioner takes.")
    parser.add_argument("--layers", type=int, nargs="*", default=[24, 48, 96])
    options = parse(parser, layers=[8])
    ranks_a_node = 2 if options.tiny else 8
    nodes = 2 if options.tiny else 8
    page = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("layers", "chain", "ranks", "levels", "memory", "seconds", "stages"):
        page.add_column(name, justify="right")
    for layers in options.layers:
        for name, chain in (("transformer", make_transformer(layers)), ("random", make_random(layers))):
            total_bytes = chain.count_memory(0, layers, alive=1, versions=1)
            for levels in (
                [LinkLevel(ranks_a_node * nodes, 1e10)],
                [LinkLevel(ranks_a_node, 1e11), LinkLevel(nodes, 1e10)],
            ):
                for label, part in (("-", None), ("a fifth", 5), ("a hundredth", 100)):
                    setting, least = Setting(levels, memory_bytes=part and total_bytes / part), float("inf")
                    for _ in range(3):
                        begin = time.perf_counter()
                        best_cut = find_best_cut(chain, setting)
                        least = min(least, time.perf_counter() - begin)
                    cells = (layers, name, setting.ranks, len(levels), label)
                    page.add_row(*map(str, cells), f"{least:.3f}", str(len(best_cut.stages)))
    for line in head(Path(__file__)):
        print(line)
    Console(width=columns(), highlight=False).print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
