"""Masks of a rank's weights: selected on schedule, sent to all replicas, and applied in each step."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.training import Model, Train
from hpcbench.errors import TransitError
from hpcbench.features.prune.engine import formats
from hpcbench.features.prune.engine.formats import Bits, Bytes, MaskError
from hpcbench.features.prune.engine.lengths import compute_piece_length, compute_whole_length, count_mask_bytes
from hpcbench.features.prune.engine.select import TargetSlice, select_largest, select_largest_units, select_two_of_four
from hpcbench.features.prune.engine.targets import Target, count_units, list_targets
from hpcbench.features.prune.rules import resolve_pruning
from hpcbench.features.prune.settings import Prune
from hpcbench.parallel.exact import exact_sum, gather
from hpcbench.parallel.masking import MakeMasking
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.packing import Packing, clear
from hpcbench.parallel.pieces import Piece


class Masks:
    """Masks of a rank's weights, with methods that select zeros and send masks to all replicas.

    Parameters
    ----------
    settings
        Pattern and schedule, with all defaults filled in.
    model
        The whole model.
    mesh
        Mesh of the rank.
    exact
        Channel without compression, used for magnitude counts and for masks.
    pieces
        Pieces that this rank updates. Each piece with prunable weights receives a mask.
    scattered
        Whether replicas update different pieces of a bucket.
    """

    def __init__(
        self, settings: Prune, model: Model, *, mesh: Mesh, exact: Channel, pieces: Sequence[Piece], scattered: bool
    ) -> None:
        self.settings, self._model = settings, model
        self._mesh, self._exact, self._scattered = mesh, exact, scattered
        self._width = pieces[0].master.itemsize
        self._targets = list_targets(model, settings.pattern)
        by_name = {target.name: target for target in self._targets}
        self._by_name = by_name
        self._of = [(piece, free) for piece in pieces if (free := _find_prunable(piece, by_name)).any()]

    def is_due(self, updates: int) -> bool:
        """Return whether the zeros are selected again after `updates` updates."""
        return self.settings.is_due(updates)

    def renew(self, updates: int) -> None:
        """Select the zeros after `updates` updates (a collective call)."""
        masks_of_slices = self._select(self._parts(), updates)
        chosen = iter(masks_of_slices)
        masks = []
        for piece, _ in self._of:
            mask = np.ones(piece.master.numel(), np.bool_)
            for slot, part, _ in piece.parts():
                if slot.shard.name in self._by_name:
                    mask[part] = next(chosen)
            masks.append(mask)
        self._share(masks)
        for piece, _ in self._of:
            self.apply(piece)

    def apply(self, piece: Piece) -> None:
        """Set masked master weights and moments to zero."""
        if piece.packing is not None:
            clear((piece.master, piece.adam.first, piece.adam.second), piece.packing.own)

    def save(self) -> dict[str, Tensor]:
        """Return the uint8 masks of the weights that this rank updates, keyed by parameter name, for a checkpoint."""
        return {
            owned.name: torch.from_numpy(self._get_mask(piece)[piece.owned][part].astype(np.uint8))
            for piece, _ in self._of
            for _, part, owned in piece.parts()
            if owned.name in self._by_name
        }

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load masks that were saved with `save` in the same layout (a collective call).

        Raises
        ------
        KeyError
            The mask of a parameter that this rank updates is missing.
        """
        masks = []
        for piece, _ in self._of:
            mask = np.ones(piece.master.numel(), np.bool_)
            for _, part, owned in piece.parts():
                if owned.name in self._by_name:
                    mask[part] = saved[owned.name].numpy().astype(np.bool_)
            masks.append(mask)
        self._share(masks)

    def count_zeros(self) -> list[tuple[Target, int]]:
        """Count the zeros of each target in the whole model (a collective call). All ranks return the same counts."""
        zeros_by_name = dict.fromkeys(self._by_name, 0.0)
        for piece, _ in self._of if self._counts else ():
            mask = self._get_mask(piece)[piece.owned]
            for slot, part, _ in piece.parts():
                if slot.shard.name in zeros_by_name:
                    zeros_by_name[slot.shard.name] += float((~mask[part]).sum())
        sums = exact_sum(self._mesh.world, list(zeros_by_name.values()), self._exact)
        return [(target, round(zeros)) for target, zeros in zip(self._targets, sums, strict=True)]

    @property
    def _counts(self) -> bool:
        """Whether this rank counts its weights.

        If several replicas update the same weights, only the first replica counts them.
        """
        return self._scattered or self._mesh.dp.rank == 0

    def _parts(self) -> list[TargetSlice]:
        """Return the prunable weights that this rank updates, in the order of the pieces."""
        return [
            TargetSlice(self._by_name[owned.name], slot.shard.held, owned.start, piece.master[part].cpu().numpy())
            for piece, _ in self._of
            for slot, part, owned in piece.parts()
            if owned.name in self._by_name
        ]

    def _select(self, parts: list[TargetSlice], updates: int) -> list[Bits]:
        pattern, model = self.settings.pattern, self._model
        if pattern == "2:4":
            return [select_two_of_four(part) for part in parts]
        total, largest = self._reduce_over_world(MPI.SUM), self._reduce_over_world(MPI.MAX)
        if pattern == "unstructured":
            zeros = [self.settings.count_zeros(int(np.prod(target.shape)), updates) for target in self._targets]
            return select_largest(parts, self._targets, zeros, width=self._width, counts=self._counts, total=total)
        count = count_units(model, pattern)
        families = list(dict.fromkeys(target.family for target in self._targets))
        weights = sum(int(np.prod(target.shape)) for target in self._targets) // (count * len(families))
        return select_largest_units(
            parts,
            families,
            units=count,
            zeros=self.settings.count_zeros(count, updates),
            weights=weights,
            counts=self._counts,
            total=total,
            largest=largest,
        )

    def _reduce_over_world(self, op: MPI.Op) -> Callable[[Any], None]:
        def reduce(values: Any) -> None:
            flat = values.reshape(-1)
            self._mesh.world.all_reduce(flat, channel=self._exact, op=op).wait()

        return reduce

    def _share(self, masks: Sequence[Bits]) -> None:
        """Send the masks of the rank's pieces to the replicas. Check that all replicas have the same masks."""
        for (piece, free), mask in zip(self._of, masks, strict=True):
            self._set(piece, self._gather(piece, free, mask) if self._scattered else mask)
        digest = hashlib.sha256(b"".join(formats.pack_bitmap(self._get_mask(piece)).tobytes() for piece, _ in self._of))
        number = float(int.from_bytes(digest.digest()[:6], "little"))
        if len({digest_of_replica for (digest_of_replica,) in gather(self._mesh.dp, [number], self._exact)}) > 1:
            raise TransitError("replicas have different masks, so values would be received at wrong positions")

    def _gather(self, piece: Piece, free: Bits, mask: Bits) -> Bits:
        """Gather the mask of a whole bucket from the masks of its pieces."""
        group = self._mesh.replicas(piece.bucket.ep)
        if group.size == 1:
            return mask
        to, read = (
            (formats.pack_places, formats.unpack_places)
            if self.settings.pattern == "2:4"
            else (lambda mask, free: formats.pack_bitmap(mask), formats.unpack_bitmap)
        )
        sent: Bytes = to(mask, free[piece.owned])
        everyones = np.zeros(count_mask_bytes(mask.size) * group.size, np.uint8)
        group.all_gather(sent, everyones, channel=self._exact).wait()
        parts = zip(everyones.reshape(group.size, -1), cut_evenly(free.size, group.size), strict=True)
        try:
            return np.concatenate([read(bits, free[cut]) for bits, cut in parts])
        except MaskError as error:
            raise TransitError(f"a received mask of sparse weights is invalid: {error}") from None

    def _set(self, piece: Piece, bucket_mask: Bits) -> None:
        """Set the mask of a piece's bucket."""
        group = self._mesh.replicas(piece.bucket.ep)
        mask = torch.from_numpy(np.ascontiguousarray(bucket_mask)).to(piece.bucket.values.device)
        if self._scattered:
            cuts = cut_evenly(bucket_mask.size, group.size)
            length, own_piece = compute_piece_length([int(bucket_mask[cut].sum()) for cut in cuts]), group.rank
        else:
            cuts, length, own_piece = (
                [slice(0, bucket_mask.size)],
                compute_whole_length(int(bucket_mask.sum()), group.size),
                0,
            )
        piece.packing = None if bucket_mask.all() else Packing(mask, cuts, length=length, own=own_piece)

    def _get_mask(self, piece: Piece) -> Bits:
        """Return the mask of a piece's bucket."""
        if piece.packing is None:
            return np.ones(piece.bucket.values.numel(), np.bool_)
        mask: Bits = piece.packing.kept.cpu().numpy()
        return mask


def make_masks(model: Model, train: Train, *, mesh: Mesh, exact: Channel) -> MakeMasking | None:
    """Return a function that creates the masks of a rank's pieces, or None if the weights are dense."""
    prune = resolve_pruning(train)
    if prune is None:
        return None
    return lambda pieces, scattered: Masks(prune, model, mesh=mesh, exact=exact, pieces=pieces, scattered=scattered)


def _find_prunable(piece: Piece, targets: dict[str, Target]) -> Bits:
    """For each value of a piece's bucket, return whether the value can become zero."""
    free = np.zeros(piece.bucket.values.numel(), np.bool_)
    for slot in piece.bucket.slots:
        free[slot.span] = slot.shard.name in targets
    return free
