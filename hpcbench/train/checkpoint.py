"""Checkpoints of a run, with one file per rank. A run with any layout can resume from a checkpoint.

``checkpoint/step-000060/`` contains the files ``rank-00000.pt``, ``rank-00001.pt`` and so on. The directory also
contains ``complete.json`` with the size and digest of each file and the tensor index. The directory is written under a
temporary name, all files are synced to disk, and the directory is renamed when all ranks have finished. If the run is
killed at any time, the previous checkpoint remains usable. The last two checkpoints are kept, because a file system may
damage one.
"""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mpi4py import MPI

from hpcbench.contract.run import Run
from hpcbench.contract.training import UNFLUSHED
from hpcbench.errors import UserError
from hpcbench.train import checkpoint_files as files
from hpcbench.train.checkpoint_index import (
    RESIDUALS,
    SHARED,
    Index,
    ReplicasDifferError,
    announce,
    fragments,
    share_out,
)
from hpcbench.train.checkpoint_load import Files, fill, share_residuals, take_own_residuals
from hpcbench.train.corpus import Corpus

T = TypeVar("T")

_CUTS = ("layout.", "train.zero", "train.bucket_mb", "train.sequence_parallel")
"""Settings that determine which part of the state each rank holds. A checkpoint with other values of these settings
has another layout."""
_FREE = (
    *_CUTS,
    "train.micro_batch",
    "train.overlap",
    "train.checkpoint_every",
    "train.schedule",
    "train.recompute",
    "train.offload",
    "train.node_copy",
)
"""Settings that may change when a run is resumed."""
_FREE_WHERE_BOUND = ("train.overlap", "train.checkpoint_every")
"""Settings that may change if the checkpoint contains weight versions of stages or clocks of workers."""
_OWN = ("factors", "boundaries", "samples")
"""Tensors that belong to one rank, and that another layout cannot use."""
_NOT_SCALARS = (*SHARED, RESIDUALS, *_OWN, "shards", "holder", "replicas", "calls")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint, verified by all ranks."""

    step: int
    """Number of completed steps."""
    directory: Path
    corpus: str
    """Digest of the corpus."""
    index: Index
    """Tensor index of the files."""
    holders: list[list[int]]
    """For each writing rank, the identifier of its residuals.

    Ranks with the same identifier had identical residuals.
    """
    scalars: dict[str, Any]
    """Values that are the same on all ranks: loss scale, number of updates, and number of skipped steps."""
    calls: dict[str, int]
    """Number of calls of each channel (the maximum over all ranks)."""
    changed: tuple[str, ...] = ()
    """Differences from the layout of the resumed run. If there are none, resuming is bitwise exact."""


@dataclass(frozen=True)
class LatestCheckpoint:
    """Result of `Checkpoints.find`."""

    newest: Checkpoint | None
    damaged: tuple[str, ...] = ()
    """Newer checkpoints that are unusable, with the reasons."""


@dataclass(frozen=True)
class Written:
    """Size and write time of a checkpoint. Bytes are summed over the ranks."""

    step: int
    bytes: int
    seconds: float


class Checkpoints:
    """Checkpoints of one run. All methods are collective calls.

    Parameters
    ----------
    directory
        Directory of the checkpoints. The first checkpoint creates the directory.
    comm
        Communicator of all ranks. No other operation may be in progress on this communicator.
    run
        The run. Checkpoints of other runs are rejected.
    """

    def __init__(self, directory: Path, comm: MPI.Comm, run: Run) -> None:
        self._directory = directory
        self._comm = comm
        self._identity = identity(run)
        self._damaged: set[Path] = set()

    def find(self) -> LatestCheckpoint:
        """Return the newest complete checkpoint. Every rank verifies its own file.

        Raises
        ------
        UserError
            The checkpoint belongs to another run or was written by another version of hpcbench. The message contains
            the first differing key.
        """
        faults: list[str] = []
        for step, path in self._from_first(lambda: sorted(files.numbered(self._directory).items(), reverse=True)):
            manifest = self._from_first(partial(files.read_manifest, path))
            if isinstance(manifest, dict):
                why = self._damage(path, manifest)
                if not why:
                    return LatestCheckpoint(self._describe(step, path, manifest), tuple(faults))
            else:
                why = manifest
            self._damaged.add(path)
            faults.append(f"{path.name}: {why}")
        return LatestCheckpoint(None, tuple(faults))

    def load(self, checkpoint: Checkpoint, state: dict[str, Any]) -> dict[str, Any]:
        """Load the checkpoint into this rank's `Trainer.state`, and return the state.

        In the same layout, the loaded state is bitwise identical to the written state. In another layout, this is true
        only for weights and optimizer states. `carried` describes the changes of residuals and call counts.

        Raises
        ------
        UserError
            The files of a rank do not match the index. All ranks raise the error.
        """
        trouble = ""
        rank, opened = self._comm.rank, Files(lambda rank: checkpoint.directory / files.rank_file(rank))
        state.update(checkpoint.scalars)
        try:
            fill(state, checkpoint.index, opened)
            if checkpoint.changed:
                share_residuals(state, checkpoint.index, opened, checkpoint.holders)
            else:
                take_own_residuals(state, opened[rank])
            for kind in _OWN:
                state[kind] = {} if checkpoint.changed else opened[rank].get(kind, {})
            state["calls"] = checkpoint.calls if checkpoint.changed else opened[rank]["calls"]
        except (OSError, ValueError, KeyError) as error:
            trouble = str(error.strerror if isinstance(error, OSError) else error)
        if fault := next(filter(None, self._comm.allgather(trouble)), None):
            raise UserError(
                f"{checkpoint.directory}: {fault}: remove this checkpoint to continue from the previous "
                "checkpoint, or from step 1"
            )
        return state

    def write(self, step: int, state: dict[str, Any], *, corpus: Corpus) -> Written:
        """Write the state after `step` steps, and remove the oldest checkpoint.

        Parameters
        ----------
        state
            State returned by `Trainer.state`.
        corpus
            Corpus of the run.

        Raises
        ------
        UserError
            A rank cannot write its file. All ranks raise the error.
        ReplicasDifferError
            Values that must be bitwise identical differ between two ranks. All ranks raise the error.
        """
        begin = time.perf_counter()
        final = self._directory / f"step-{step:06}"
        unfinished = final.with_suffix(".partial")
        self._agreed(step, lambda: files.fresh(unfinished) if self._comm.rank == 0 else None)
        content, index = self._collect(state)
        entries = self._agreed(step, lambda: files.write_rank(unfinished / files.rank_file(self._comm.rank), content))
        everyone = self._comm.gather((state["holder"], state["calls"]))

        def publish() -> None:
            assert everyone is not None and index is not None
            manifest = {
                "schema": files.SCHEMA,
                "step": step,
                "run": self._identity,
                "corpus": corpus.digest,
                "scalars": {key: value for key, value in state.items() if key not in _NOT_SCALARS},
                "calls": _largest([calls for _, calls in everyone]),
                "holders": [holder for holder, _ in everyone],
                "ranks": entries,
                "index": index.tables,
            }
            files.write_manifest(unfinished, manifest)
            files.publish(unfinished, final)
            files.prune(self._directory, step, self._damaged - {final})

        self._agreed(step, lambda: publish() if self._comm.rank == 0 else None)
        return Written(step, sum(entry["bytes"] for entry in entries), round(time.perf_counter() - begin, 3))

    def _collect(self, state: dict[str, Any]) -> tuple[dict[str, Any], Index | None]:
        """Return the content of this rank's file and, on the first rank, the index."""
        parts = list(fragments(state))
        announced = self._comm.gather([announce(fragment) for fragment in parts])
        index: Index | None = None
        answers: list[tuple[list[int], str]] | None = None
        if announced is not None:
            try:
                chosen = share_out(announced)
                index, answers = Index.of(announced, chosen), [(choice, "") for choice in chosen]
            except ReplicasDifferError as error:
                answers = [([], str(error)) for _ in announced]
        mine, trouble = self._comm.scatter(answers)
        if trouble:
            raise ReplicasDifferError(trouble)
        content: dict[str, Any] = {kind: {} for kind in (*SHARED, RESIDUALS)}
        for fragment in (parts[i] for i in mine):
            content[fragment.kind][fragment.name] = fragment.fields
        return {**content, "calls": state["calls"], **{kind: state[kind] for kind in _OWN}}, index

    def _damage(self, path: Path, manifest: dict[str, Any]) -> str | None:
        """Return the first fault in the checkpoint files, in rank order, or None if all files are valid."""
        if manifest["schema"] != files.SCHEMA:
            raise UserError(
                f"{path}: was written by another version of hpcbench: continue with that version, or remove "
                f"{path.parent} to start from step 1"
            )
        _refuse_other(manifest["run"], self._identity, path)
        ranks = manifest["ranks"]  # each file is read by one rank (in the same layout by the rank that wrote it)
        mine = range(self._comm.rank, len(ranks), self._comm.size)
        wrong = (files.damage(path / files.rank_file(rank), ranks[rank]) for rank in mine)
        faults = self._comm.allgather(next(filter(None, wrong), None))
        return next(filter(None, faults), None)

    def _describe(self, step: int, path: Path, manifest: dict[str, Any]) -> Checkpoint:
        stored = {key: manifest[key] for key in ("corpus", "holders", "scalars", "calls")}
        differ = _differences(manifest["run"], self._identity)
        changed = tuple(f"{key} {theirs} -> {ours}" for key, theirs, ours in differ if key.startswith(_CUTS))
        return Checkpoint(step, path, index=Index(manifest["index"]), changed=changed, **stored)

    def _from_first(self, ask: Callable[[], T]) -> T:
        """Return the result of the first rank, because other ranks may see a stale shared directory."""
        answer: T = self._comm.bcast(ask() if self._comm.rank == 0 else None)
        return answer

    def _agreed(self, step: int, act: Callable[[], T]) -> list[T]:
        """Return the result of `act` on each rank. If `act` fails on one rank, all ranks raise the error."""
        outcome: tuple[str, T | None]
        try:
            outcome = "", act()
        except OSError as error:
            outcome = f"rank {self._comm.rank} on {socket.gethostname()}: {error.strerror}", None
        outcomes = self._comm.allgather(outcome)
        trouble = next((message for message, _ in outcomes if message), None)
        if trouble:
            raise UserError(
                f"{self._directory}: the checkpoint of step {step} cannot be written: {trouble}: free "
                "disk space, or set "
                "train.checkpoint_every to 0"
            )
        return [given for _, given in outcomes]


def carried(checkpoint: Checkpoint, state: dict[str, Any]) -> str:
    """Describe in one line how a checkpoint of another layout was converted.

    Parameters
    ----------
    state
        State of a rank of the resumed run.
    """
    changes = ["calls of channels continue from the largest count of all ranks"]
    if checkpoint.index.tables[RESIDUALS]:
        shared = (
            "residuals are added up and divided equally among the ranks"
            if state[RESIDUALS]
            else "residuals are dropped"
        )
        changes.append(shared)
    return f"another layout ({', '.join(checkpoint.changed)}): {'; '.join(changes)}"


def identity(run: Run) -> dict[str, Any]:
    """Return the settings that identify a run in its checkpoints."""
    return run.model_dump(mode="json", include={"model", "data", "train", "layout", "scheme"})


def _largest(counts: list[dict[str, int]]) -> dict[str, int]:
    """Return the largest count of each channel.

    With the largest counts, a codec with stochastic rounding never reuses a seed on any rank.
    """
    names = {name for calls in counts for name in calls}
    return {name: max(calls.get(name, 0) for calls in counts) for name in sorted(names)}


def _refuse_other(theirs: dict[str, Any], ours: dict[str, Any], path: Path) -> None:
    trains = [settings["train"] for settings in (theirs, ours)]
    bound = any(train["schedule"] in UNFLUSHED or train["sync"] != "all-reduce" for train in trains)
    for key, there, here in _differences(theirs, ours):
        if not key.startswith(_FREE_WHERE_BOUND if bound else _FREE):
            raise UserError(
                f"{path}: belongs to another run: {key} is {there!r} in the checkpoint, but {here!r} in the run "
                f"file: remove {path.parent} to start from step 1"
            )


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, checkpoint value and run value of each differing setting, in the order of the run file."""
    there, here = dict(_flat(theirs)), dict(_flat(ours))
    for key in dict.fromkeys((*here, *there)):
        if there.get(key) != here.get(key):
            yield key, there.get(key), here.get(key)


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values of nested mappings. A list counts as one value."""
    if not isinstance(data, dict) or not data:
        yield name, data
        return
    for key, value in data.items():
        yield from _flat(value, f"{name}.{key}" if name else key)
