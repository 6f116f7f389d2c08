"""Checkpoints of a run: all of its state, one file a rank, whole or not there at all.

``checkpoint/step-000060/`` holds ``rank-00000.pt`` and so on, and ``complete.json`` with size and digest of each. The
directory is written under another name, every file of it forced to the disk, and renamed when all ranks are done: a
kill at any moment leaves the checkpoint before it usable. The last two are kept, because a file system may damage one.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from mpi4py import MPI

from hpcbench.errors import UserError
from hpcbench.train import checkpoint_files as files
from hpcbench.train.config import Run
from hpcbench.train.text import Corpus

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that all ranks have found whole."""

    step: int
    """Steps that had been taken."""
    directory: Path
    corpus: str
    """Digest of the text that the run had read."""


@dataclass(frozen=True)
class Found:
    """What `Checkpoints.find` found."""

    newest: Checkpoint | None
    damaged: tuple[str, ...] = ()
    """Newer ones that cannot be used, each with the reason."""


@dataclass(frozen=True)
class Written:
    """What a checkpoint took; bytes are a sum over the ranks."""

    step: int
    bytes: int
    seconds: float


class Checkpoints:
    """Checkpoints of one run. All methods are collective calls.

    Parameters
    ----------
    directory
        Where they lie; made by the first one.
    comm
        The ranks of the run, with nothing else under way on it.
    run
        Whose checkpoints: those of another run are refused.
    """

    def __init__(self, directory: Path, comm: MPI.Comm, run: Run) -> None:
        self._directory = directory
        self._comm = comm
        self._identity = identity(run)
        self._damaged: set[Path] = set()

    def find(self) -> Found:
        """The newest checkpoint that is whole; every rank checks its own file.

        Raises
        ------
        UserError
            It is that of another run, whose first key that differs is named, or of another version of hpcbench.
        """
        words: list[str] = []
        for step, path in self._from_first(lambda: sorted(files.numbered(self._directory).items(), reverse=True)):
            manifest = self._from_first(partial(files.read_manifest, path))
            if isinstance(manifest, dict):
                why = self._damage(path, manifest)
                if not why:
                    return Found(Checkpoint(step, path, manifest["corpus"]), tuple(words))
            else:
                why = manifest
            self._damaged.add(path)
            words.append(f"{path.name}: {why}")
        return Found(None, tuple(words))

    def load(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """This rank's state."""
        path = checkpoint.directory / files.rank_file(self._comm.rank)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def write(self, step: int, state: dict[str, Any], *, corpus: Corpus) -> Written:
        """Write the state after `step` steps, and let go of the oldest.

        Parameters
        ----------
        corpus
            The text that the run reads.

        Raises
        ------
        UserError
            On all ranks, when one of them cannot write.
        """
        begin = time.perf_counter()
        final = self._directory / f"step-{step:06}"
        cut = final.with_suffix(".partial")
        self._agreed(step, lambda: files.fresh(cut) if self._comm.rank == 0 else None)
        entries = self._agreed(step, lambda: files.write_rank(cut / files.rank_file(self._comm.rank), state))

        def publish() -> None:
            manifest = {
                "schema": files.SCHEMA,
                "step": step,
                "run": self._identity,
                "corpus": corpus.digest,
                "ranks": entries,
            }
            files.write_durably(cut / files.COMPLETE, json.dumps(manifest, indent=1).encode())
            files.publish(cut, final)
            files.prune(self._directory, step, self._damaged - {final})

        self._agreed(step, lambda: publish() if self._comm.rank == 0 else None)
        return Written(step, sum(entry["bytes"] for entry in entries), round(time.perf_counter() - begin, 3))

    def _damage(self, path: Path, manifest: dict[str, Any]) -> str | None:
        """What is wrong with the files of this run, in the words of the first rank that finds something."""
        if manifest["schema"] != files.SCHEMA:
            raise UserError(
                f"{path}: written by another version of hpcbench: go on with that one, or remove {path.parent} to "
                "start from step 1"
            )
        _refuse_other(manifest["run"], self._identity, path)
        ranks = manifest["ranks"]
        if len(ranks) != self._comm.size:
            return f"{files.COMPLETE} lists {len(ranks)} ranks"
        found = self._comm.allgather(files.damage(path / files.rank_file(self._comm.rank), ranks[self._comm.rank]))
        return next(filter(None, found), None)

    def _from_first(self, ask: Callable[[], T]) -> T:
        """The first rank's answer: a shared file system may show another one an older directory."""
        answer: T = self._comm.bcast(ask() if self._comm.rank == 0 else None)
        return answer

    def _agreed(self, step: int, act: Callable[[], T]) -> list[T]:
        """What `act` gives on each rank; an error of one is raised by all."""
        outcome: tuple[str, T | None]
        try:
            outcome = "", act()
        except OSError as error:
            outcome = f"rank {self._comm.rank} on {socket.gethostname()}: {error.strerror}", None
        outcomes = self._comm.allgather(outcome)
        trouble = next((words for words, _ in outcomes if words), None)
        if trouble:
            raise UserError(
                f"{self._directory}: the checkpoint of step {step} cannot be written: {trouble}: make room, or set "
                "train.checkpoint_every to 0"
            )
        return [given for _, given in outcomes]


def identity(run: Run) -> dict[str, Any]:
    """What a run that goes on must have in common with the one that wrote the checkpoint."""
    settings = asdict(run)
    del settings["train"]["checkpoint_every"]
    return {key: settings[key] for key in ("model", "data", "train", "layout", "scheme")}


def _refuse_other(theirs: dict[str, Any], ours: dict[str, Any], path: Path) -> None:
    theirs, ours = dict(_flat(theirs)), dict(_flat(ours))
    for key in (*ours, *theirs):
        if theirs.get(key) != ours.get(key):
            raise UserError(
                f"{path}: a checkpoint of another run: {key} is {theirs.get(key)!r} there and {ours.get(key)!r} in the "
                f"run file: remove {path.parent} to start from step 1"
            )


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings by their dotted names; a list is a leaf."""
    if not isinstance(data, dict) or not data:
        yield name, data
        return
    for key, value in data.items():
        yield from _flat(value, f"{name}.{key}" if name else key)
