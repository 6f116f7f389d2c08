"""Worker that kills ranks while they write checkpoints, and damages checkpoints, on real ranks. The worker prints JSON
lines."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from checkpoint_worker import GPT2, NEOX, SIGNS, WORLD, differences, run_of, tell

from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.parallel.sharding import Cut, Shard
from hpcbench.train import checkpoint_files as files
from hpcbench.train.checkpoint import Checkpoints
from hpcbench.train.corpus import Corpus

TOY = run_of(Layout(dp=2))
TEXT = Corpus(np.zeros(9, np.uint8), np.ones(9, np.uint8))


def toy_state(step: int) -> dict[str, Any]:
    """Return a state in which each rank holds half of one tensor."""
    shard = Shard("weights", (100_000,), (Cut(WORLD.rank, 2),))
    return {
        "parameters": {"weights": {"start": 0, "values": torch.full((50_000,), float(100 * step + WORLD.rank))}},
        "optimizer": {},
        "residuals": {},
        "calls": {"DP BACKWARD GRAD": 10 * step + WORLD.rank},
        "factors": {},
        "boundaries": {},
        "samples": {},
        "updates": step,
        "shards": {"weights": shard},
        "holder": [WORLD.rank, 0, 0],
        "replicas": 2,
        "summands": True,
    }


def write(directory: Path, *steps: int, run: Run = TOY) -> Checkpoints:
    checkpoints = Checkpoints(directory, WORLD, run)
    for step in steps:
        checkpoints.write(step, toy_state(step), corpus=TEXT)
    return checkpoints


def found_in(directory: Path, run: Run = TOY) -> dict[str, Any]:
    """Return the newest checkpoint, and whether it equals the written state."""
    checkpoints = Checkpoints(directory, WORLD, run)
    try:
        checkpoint = checkpoints.find()
    except UserError as error:
        return {"error": str(error)}
    step = checkpoint.newest.step if checkpoint.newest else None
    sound = checkpoint.newest is None or not differences(
        checkpoints.load(checkpoint.newest, toy_state(0)), toy_state(step or 0)
    )
    return {"step": step, "damaged": checkpoint.damaged, "sound": sound}


@contextmanager
def killed(point: str) -> Iterator[None]:
    """Kill one rank at this point in the block, as if by SIGKILL."""

    def die(*_: Any, **__: Any) -> None:
        os._exit(9)

    def half(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        die()

    def in_own_file(self: Any, data: bytes) -> int:
        if self.size > 100_000:
            self._stream.flush()
            die()
        return digested(self, data)

    digested = files._Digested.write
    sync, rank = files._sync, WORLD.rank
    patches = {
        "before_any_file": (0, patch.object(files, "fresh", die)),
        "before_own_file": (1, patch.object(files, "write_rank", die)),
        "in_own_file": (1, patch.object(files._Digested, "write", in_own_file)),
        "before_complete": (0, patch.object(files, "write_durably", die)),
        "in_complete": (0, patch.object(files, "write_durably", half)),
        "before_rename": (0, patch.object(files, "_sync", die)),
        "after_rename": (0, patch.object(files, "_sync", lambda path: sync(path) if "partial" in path.name else die())),
        "in_prune": (0, patch.object(files.shutil, "rmtree", lambda path, **_: path.name == "step-000002" and die())),
    }
    with ExitStack() as stack:
        chosen, patched = patches[point]
        if rank == chosen:
            stack.enter_context(patched)
        yield


def kill(directory: str, point: str) -> None:
    """Write two checkpoints, and start a third that is never completed."""
    write(Path(directory), 2, 4)
    with killed(point):
        write(Path(directory), 6)
    WORLD.Barrier()  # the other rank waits for the dead one, because mpiexec sometimes missed the death if it exited


def after(*directories: str) -> None:
    """Print the contents of each directory, and whether the run can continue to write checkpoints there."""
    for directory in map(Path, directories):
        answer = found_in(directory)
        write(directory, 8)
        names = sorted(path.name for path in directory.iterdir()) if WORLD.rank == 0 else []
        WORLD.Barrier()
        tell({"point": directory.name, **answer, "names": WORLD.bcast(names), "then": found_in(directory)["step"]})


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def stale(path: Path) -> None:
    """Replace the index with the index of the previous checkpoint."""
    manifest = files.read_manifest(path.with_name("step-000002"))
    assert isinstance(manifest, dict)
    files.write_manifest(path, {**manifest, "step": 4})


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path / "rank-00001.pt", 1000),
    "flipped": lambda path: flip(path / "rank-00001.pt"),
    "gone": lambda path: (path / "rank-00000.pt").unlink(),
    "empty": lambda path: os.truncate(path / "rank-00000.pt", 0),
    "no_complete": lambda path: (path / "complete.json").unlink(),
    "complete_cut": lambda path: os.truncate(path / "complete.json", 60),
    "complete_other_step": lambda path: edit(path / "complete.json", lambda data: data.update(step=5)),
    "complete_no_digest": lambda path: edit(path / "complete.json", lambda data: data["ranks"][0].pop("xxh3")),
    "complete_few_ranks": lambda path: edit(path / "complete.json", lambda data: data["ranks"].pop()),
    "complete_other_place": lambda path: edit(
        path / "complete.json", lambda data: data["index"]["parameters"]["weights"]["parts"].reverse()
    ),
    "complete_stale": lambda path: stale(path),
    "complete_is_a_list": lambda path: (path / "complete.json").write_text("[1]"),
}


def damage(directory: str) -> None:
    for name, spoil in DAMAGE.items():
        where = Path(directory) / name
        write(where, 2, 4)
        if WORLD.rank == 0:
            spoil(where / "step-000004")
        WORLD.Barrier()
        tell({"damage": name, **found_in(where)})
    for name in ("both", "kept"):
        write(Path(directory) / name, 2, 4)
        if WORLD.rank == 0:
            for step in ("step-000002", "step-000004") if name == "both" else ("step-000004",):
                flip(Path(directory) / name / step / "rank-00001.pt")
        WORLD.Barrier()
    tell({"damage": "both", **found_in(Path(directory) / "both")})
    going_on = Checkpoints(Path(directory) / "kept", WORLD, TOY)
    going_on.find()
    going_on.write(6, toy_state(6), corpus=TEXT)
    names = sorted(path.name for path in (Path(directory) / "kept").iterdir())
    tell({"damage": "kept", "names": names})


def others(directory: str) -> None:
    """Print the checkpoint or error that runs with other settings find in the directory."""
    where = Path(directory)
    write(where, 2)
    changes = {
        "learning rate": TOY.changed(train=TOY.train.changed(lr=0.5)),
        "seed": TOY.changed(train=TOY.train.changed(seed=8)),
        "vocabulary": TOY.changed(model=NEOX.changed(vocab=300)),
        "data": TOY.changed(data=Data(source="stdlib", valid_fraction=0.2)),
        "model": TOY.changed(model=GPT2),
        "scheme": TOY.changed(scheme=SIGNS),
        "checkpoint_every": TOY.changed(train=TOY.train.changed(checkpoint_every=7)),
    }
    for name, run in changes.items():
        tell({"change": name, **found_in(where, run)})
    if WORLD.rank == 0:
        edit(where / "step-000002" / "complete.json", lambda data: data.update(schema=1))
    WORLD.Barrier()
    tell({"change": "version", **found_in(where)})


def full(directory: str) -> None:
    """Simulate a full disk on one rank. All ranks must detect the error, and the previous checkpoint must remain."""
    where = Path(directory)
    checkpoints = write(where, 2)
    device = where.parent / "full"
    if WORLD.rank == 0:
        device.symlink_to("/dev/full")
    WORLD.Barrier()
    write_rank = files.write_rank
    to = device if WORLD.rank == 1 else None
    with patch.object(files, "write_rank", lambda path, state: write_rank(to or path, state)):
        try:
            checkpoints.write(4, toy_state(4), corpus=TEXT)
        except UserError as error:
            tell({"error": str(error), **found_in(where)})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
