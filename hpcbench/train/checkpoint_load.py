"""Loading of a rank's state from a checkpoint with any layout. Only files with required parts are opened.

The files are memory-mapped, so only the copied parts are read from disk.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpcbench.parallel.sharding import Shard, Tied
from hpcbench.train.checkpoint_index import RESIDUALS, Fragment, Index, fragments
from hpcbench.train.extent import Extent, copy, meet

File = dict[str, Any]


class Files:
    """Rank files of a checkpoint. Each file is opened when it is first needed.

    Parameters
    ----------
    path
        Function that returns the path of a rank's file.
    """

    def __init__(self, path: Callable[[int], Path]) -> None:
        self._path = path
        self._opened: dict[int, File] = {}

    def __getitem__(self, rank: int) -> File:
        if rank not in self._opened:
            self._opened[rank] = torch.load(self._path(rank), map_location="cpu", weights_only=True, mmap=True)
        return self._opened[rank]

    @property
    def opened(self) -> list[int]:
        """Ranks whose files were opened."""
        return sorted(self._opened)


def fill(state: dict[str, Any], index: Index, files: Files) -> None:
    """Copy weights and optimizer tensors from the files to `state`.

    Raises
    ------
    ValueError
        The checkpoint does not contain all elements of a tensor.
    """
    for fragment in fragments(state):
        if fragment.kind != RESIDUALS:
            _fill(fragment, index, files)


def _fill(fragment: Fragment, index: Index, files: Files) -> None:
    to, filled = fragment.extent, 0
    for part in index.parts(fragment.kind, fragment.name, fragment.shape):
        if meet(to, part.extent):
            source = _fields(files[part.rank], fragment)
            for key, target in fragment.fields.items():
                copied = copy(target, to, source[key], part.extent)
            filled += copied
    if filled != to.length:
        raise ValueError(
            f"the checkpoint contains only {filled} of {to.length} elements of the {fragment.kind} of {fragment.name}"
        )


def _fields(file: File, fragment: Fragment) -> dict[str, Tensor]:
    fields: dict[str, Tensor] = file[fragment.kind][fragment.name]
    if {key: values.dtype for key, values in fields.items()} != {k: v.dtype for k, v in fragment.fields.items()}:
        raise ValueError(
            f"the {fragment.kind} of {fragment.name} in the checkpoint do not have the expected fields or dtypes "
            f"(fields found: {sorted(fields)})"
        )
    return fields


def take_own_residuals(state: dict[str, Any], file: File) -> None:
    """Load the residuals of the same rank in the same layout without any change."""
    for fragment in fragments(state):
        if fragment.kind == RESIDUALS:
            for key, target in fragment.fields.items():
                target.copy_(_fields(file, fragment)[key])


def share_residuals(state: dict[str, Any], index: Index, files: Files, holders: list[list[int]]) -> None:
    """Load residuals from another layout.

    The residuals are summed over the old ranks and divided equally among the ranks of this layout. The residuals of
    sums (``summed``) are added to the residuals of contributions (``sent``), because both correct the same sum. The
    total error of each parameter is therefore conserved up to fp32 rounding, whichever ranks own sums or hold
    contributions in the new layout. A layout with only one replica has no residuals, because it sends no gradients.

    Parameters
    ----------
    holders
        For each writing rank, the identifier of its residuals. Residuals with the same identifier are counted once.
    """
    for fragment in fragments(state):
        if fragment.kind == RESIDUALS:
            total = lacking(fragment, index, files, holders)
            fragment.fields["summed"].zero_()
            fragment.fields["sent"].copy_(total / _shares(state, fragment.name))


def _shares(state: dict[str, Any], name: str) -> int:
    """Return the number of ranks that hold different residuals of the same elements of a parameter.

    Each of these ranks receives a share.
    """
    shard: Shard = state["shards"][name]
    shares: int = state["replicas"] // shard.ep
    if state["summands"]:
        shares *= (shard.copies if shard.partial else 1) * (1 if shard.tied is Tied.NO else 2)
    return shares


def lacking(fragment: Fragment, index: Index, files: Files, holders: list[list[int]]) -> Tensor:
    """Return the sum of all residuals of a layout, fp64 [fragment.extent.length]."""
    total = torch.zeros(fragment.extent.length, dtype=torch.float64)
    piece = torch.zeros_like(total)
    counted: set[tuple[tuple[int, ...], Extent]] = set()
    for part in index.parts(RESIDUALS, fragment.name, fragment.shape):
        once = tuple(holders[part.rank]), part.extent
        if once not in counted and meet(fragment.extent, part.extent):
            counted.add(once)
            for values in _fields(files[part.rank], fragment).values():
                piece.zero_()
                copy(piece, fragment.extent, values, part.extent)
                total += piece
    return total
