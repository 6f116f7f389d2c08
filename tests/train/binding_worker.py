"""Worker that prints one JSON line: the placement of ranks, and how it compares with a rank shape."""

import json
import os
import sys
from types import SimpleNamespace

from mpi4py import MPI

from hpcbench.contract.run import RankShape
from hpcbench.errors import UserError
from hpcbench.train import binding

WORLD = MPI.COMM_WORLD

if __name__ == "__main__":
    shape, cores = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    if cores:
        os.sched_setaffinity(0, cores[WORLD.rank])
    world = WORLD.gather(binding.describe(WORLD, "cpu"))
    if world:
        try:
            outcome = binding.check(world, SimpleNamespace(shape=shape and RankShape(**shape), oversubscribe=False))
        except UserError as error:
            outcome = str(error)
        print(json.dumps({"world": world, "outcome": outcome}))
