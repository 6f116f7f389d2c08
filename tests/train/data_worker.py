"""Worker that prints each rank's part of a shared text as JSON lines."""

import json
import sys

import numpy as np
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.train import text

WORLD = MPI.COMM_WORLD

for argument in sys.argv[1:]:
    data = Data(**json.loads(argument))
    answer: dict[str, object] = {"path": data.path, "rank": WORLD.rank}
    try:
        corpus = text.load_shared(WORLD, Progress(Wait.GIVE_WAY), data, 12, 1000)
    except UserError as error:
        answer["error"] = str(error)
    else:
        window = corpus.window(split="train", key=5, index=np.arange(4, dtype=np.uint64), seq_len=12)
        answer.update(digest=corpus.digest, window=window.tolist(), mapped=isinstance(corpus.train, np.memmap))
    for each in WORLD.gather(answer) or []:
        print(json.dumps(each), flush=True)
