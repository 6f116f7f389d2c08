"""Worker that trains random runs.

The worker prints one JSON line per case: the log's numbers, and each rank's counts by channel.
"""

import io
import json
import sys
from collections import Counter
from typing import Any

import cases
import shared_text
import traffic_cases
from mpi4py import MPI
from parity import meet

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.events import MemoryUse, TrafficTotals
from hpcbench.contract.log_line import parse
from hpcbench.contract.run import Run
from hpcbench.contract.step_line import Step
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train, trainer_of

WORLD = MPI.COMM_WORLD


def logged(run: Run, comm: MPI.Comm) -> dict[str, Any] | None:
    """Return the log of a run on rank 0, with the counts of all ranks."""
    trainer = trainer_of(run, comm, Progress(Wait.GIVE_WAY, background=run.train.overlap), shared_text.corpus())
    stream = io.StringIO()
    state = train(trainer, LogWriter(stream))
    counted = Counter[str]()
    for (key, _), sums in trainer.traffic._sums.items():  # keyed by traffic, because ranks have different channels
        counted.update({" ".join(key): round(sums["message_bytes"])})
    held = {f"{what.replace(' ', '_')}_bytes": nbytes for what, nbytes in trainer.held_bytes().items()}
    meet(comm)
    everyones = comm.gather((counted, held))
    if everyones is None:
        return None
    records = [parse(line, i) for i, line in enumerate(stream.getvalue().splitlines(), 1)]
    (traffic,) = (record for record in records if isinstance(record, TrafficTotals))
    (memory,) = (record for record in records if isinstance(record, MemoryUse))
    steps = [record for record in records if isinstance(record, Step)]
    window = [step for step in steps if traffic.from_step <= step.step <= traffic.to_step]
    return {
        "state": state[0],
        "steps": [[step.message_bytes, step.wire_bytes] for step in window],
        "channels": {
            " ".join(filter(None, (row.dimension, row.phase, row.kind, row.axis))): [
                row.message_bytes,
                row.wire_bytes,
                row.calls,
                row.plain_calls,
            ]
            for row in traffic.channels
        },
        "counted": [counts for counts, _ in everyones],
        "held": [bytes_held for _, bytes_held in everyones],
        "memory": memory.raw,
    }


def main(tier: str = "") -> None:
    """Run the cases. Teams of ranks work in parallel."""
    drawn = WORLD.bcast(traffic_cases.traffic_cases(tier) if WORLD.rank == 0 else None)
    runs = [cases.run_of(case) for case in drawn]
    results = []
    for ranks in sorted({run.ranks for run in runs}):
        meet(WORLD)
        team, teams = WORLD.rank // ranks, WORLD.size // ranks
        comm = WORLD.Split(team, WORLD.rank)
        if team >= teams:
            continue
        for number in [number for number, run in enumerate(runs) if run.ranks == ranks][team::teams]:
            if lines := logged(runs[number], comm):
                results.append({"case": number, "name": cases.label(drawn[number]), **lines})
    meet(WORLD)
    for result in [result for rank in WORLD.gather(results) or [] for result in rank]:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
