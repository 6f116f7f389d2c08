"""Trace the memory of each rank through a step: ``mpiexec ... python memory_worker.py DIRECTORY``.

The directory contains run files. For each file, rank 0 prints a JSON line with the peak of every rank in bytes. Each
tensor storage is counted once while anything refers to it. NumPy arrays are counted by the memory that NumPy allocates.
"""

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.run import load
from hpcbench.train import text
from hpcbench.train.trainer import Trainer


class Trace(TorchDispatchMode):
    """Dispatch mode that inspects all storages after each operation."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, StorageWeakRef] = {}
        self._apart = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see((args, kwargs, result))
        return result

    def see(self, values: Any) -> None:
        """Add the storages of these tensors to the live storages, and update the peak."""
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                storage = value.untyped_storage()
                self._alive.setdefault(storage._cdata, StorageWeakRef(storage))
        self._alive = {key: item for key, item in self._alive.items() if not item.expired()}
        # Use the current size: weights that are gathered on demand change the size of their storage.
        tensors = sum(_size(item) for item in self._alive.values())
        self.peak = max(self.peak, tensors + max(tracemalloc.get_traced_memory()[0] - self._apart, 0))

    def begin(self) -> None:
        """Record the current memory of Python as an offset."""
        domain = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        held = sum(item.size for item in tracemalloc.take_snapshot().filter_traces([domain]).statistics("filename"))
        self._apart, self.peak = tracemalloc.get_traced_memory()[0] - held, 0


def _size(item: StorageWeakRef) -> int:
    storage = torch.UntypedStorage._new_with_weak_ptr(item.cdata)
    return storage.nbytes() if storage is not None else 0


def main(directory: Path) -> None:
    """Trace every run of the directory."""
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    for file in sorted(directory.glob("*.json")):
        run = load(file)[0]
        driver = Progress(Wait.GIVE_WAY, background=run.train.overlap)
        corpus = text.load_shared(world, driver, run.data, run.train.seq_len)
        tracemalloc.start()
        with Trace() as trace:
            trainer = Trainer(run, world, driver, corpus)
            trainer.step(0)
            trace.begin()
            trainer.step(1)
        tracemalloc.stop()
        peaks = world.gather(trace.peak)
        if world.rank == 0:
            print(json.dumps({"run": run.run, "peaks": peaks}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
