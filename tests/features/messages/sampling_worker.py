"""Worker that runs hpcbench.train and records sent messages.

Arguments: RUN.json, and the FOLDER for the recorded files.
"""

import pickle
import runpy
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpcbench.comm.group import Group
from hpcbench.train.trainer import Trainer

FOLDER = Path(sys.argv.pop(2))
CALLS = []
STEP = [0]


def record_calls(name, select_sent):
    """Record what each call of a `Group` method sends: step, channel, operation and values."""
    real = getattr(Group, name)

    def call(self, *arguments, channel, **others):
        if STEP[0] and self.size > 1 and channel.dimension.value != "EXACT":
            values = select_sent(self, *arguments, **others)
            if values is not None:
                channel_name = " ".join(word.value if hasattr(word, "value") else word for word in channel.traffic)
                CALLS.append((STEP[0], channel_name, name.replace("_", "-"), np.array(values, np.float32).reshape(-1)))
        return real(self, *arguments, channel=channel, **others)

    setattr(Group, name, call)


def select_others(group, src, dst, counts, **others):
    spans = list(pairwise(accumulate(counts[0], initial=0)))
    return np.concatenate([src[slice(*span)] for peer, span in enumerate(spans) if peer != group.rank])


def select_values(group, values, *arguments, **others):
    return values


for name in ("all_reduce", "reduce_scatter", "all_gather", "send", "shift"):
    record_calls(name, select_values)
record_calls("pass_on", lambda group, src, dst, relay, **others: src if relay.is_empty else None)
record_calls("all_to_all", select_others)
step = Trainer.step


def take_step(self, k, *arguments):
    STEP[0] = k + 1
    try:
        return step(self, k, *arguments)
    finally:
        STEP[0] = 0


Trainer.step = take_step
sys.argv[0] = "hpcbench.train"
try:
    runpy.run_module("hpcbench.train", run_name="__main__")
finally:
    (FOLDER / f"seen-{MPI.COMM_WORLD.rank}").write_bytes(pickle.dumps(CALLS))
