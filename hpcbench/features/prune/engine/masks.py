"""The masks of a rank's weights: chosen again when it is time, told to all replicas, and kept through each step."""

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
from hpcbench.features.prune.engine.lengths import mask_bytes, piece_length, whole_length
from hpcbench.features.prune.engine.select import TargetSlice, largest_of_each, largest_units, two_of_four
from hpcbench.features.prune.engine.targets import Target, targets, units
from hpcbench.features.prune.rules import pruning
from hpcbench.features.prune.settings import Prune
from hpcbench.parallel.exact import exact_sum, gather
from hpcbench.parallel.masking import MakeMasking
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.packing import Packing, clear
from hpcbench.parallel.pieces import Piece


class Masks:
    """Chooses the weights that become zero, and tells all replicas which they are.

    Parameters
    ----------
    settings
        Pattern and schedule, with all values filled in.
    model
        The whole model.
    mesh
        Mesh of the rank.
    exact
        Channel of exact traffic: magnitudes' counts, and masks.
    pieces
        The pieces that this rank updates. Those with weights that can become zero get a mask.
    scattered
        Whether replicas update different pieces of a bucket.
    """

    def __init__(
        self, settings: Prune, model: Model, *, mesh: Mesh, exact: Channel, pieces: Sequence[Piece], scattered: bool
    ) -> None:
        self.settings, self._model = settings, model
        self._mesh, self._exact, self._scattered = mesh, exact, scattered
        self._width = pieces[0].master.itemsize
        self._targets = targets(model, settings.pattern)
        by_name = {target.name: target for target in self._targets}
        self._by_name = by_name
        self._of = [(piece, free) for piece in pieces if (free := _free(piece, by_name)).any()]

    def due(self, updates: int) -> bool:
        """Return whether weights are chosen again after `updates` updates."""
        return self.settings.due(updates)

    def renew(self, updates: int) -> None:
        """Choose the zeros after `updates` updates. All ranks call it together."""
        found = self._selected(self._parts(), updates)
        chosen = iter(found)
        own = []
        for piece, _ in self._of:
            kept = np.ones(piece.master.numel(), np.bool_)
            for slot, part, _ in piece.parts():
                if slot.shard.name in self._by_name:
                    kept[part] = next(chosen)
            own.append(kept)
        self._share(own)
        for piece, _ in self._of:
            self.keep(piece)

    def keep(self, piece: Piece) -> None:
        """Set master weights and moments to zero where the mask does."""
        if piece.packing is not None:
            clear((piece.master, piece.adam.first, piece.adam.second), piece.packing.own)

    def save(self) -> dict[str, Tensor]:
        """The mask of the weights that this rank updates, by parameter name, for a checkpoint: a byte for each."""
        return {
            owned.name: torch.from_numpy(self._kept(piece)[piece.owned][part].astype(np.uint8))
            for piece, _ in self._of
            for _, part, owned in piece.parts()
            if owned.name in self._by_name
        }

    def load(self, saved: dict[str, Tensor]) -> None:
        """Take the masks of `save`, of the same layout. All ranks call it together.

        Raises
        ------
        KeyError
            A parameter that this rank updates has no mask.
        """
        own = []
        for piece, _ in self._of:
            kept = np.ones(piece.master.numel(), np.bool_)
            for _, part, owned in piece.parts():
                if owned.name in self._by_name:
                    kept[part] = saved[owned.name].numpy().astype(np.bool_)
            own.append(kept)
        self._share(own)

    def counts(self) -> list[tuple[Target, int]]:
        """Return the zeros of each target of the whole model, the same on all ranks (a collective call)."""
        own = dict.fromkeys(self._by_name, 0.0)
        for piece, _ in self._of if self._counts else ():
            kept = self._kept(piece)[piece.owned]
            for slot, part, _ in piece.parts():
                if slot.shard.name in own:
                    own[slot.shard.name] += float((~kept[part]).sum())
        sums = exact_sum(self._mesh.world, list(own.values()), self._exact)
        return [(target, round(zeros)) for target, zeros in zip(self._targets, sums, strict=True)]

    @property
    def _counts(self) -> bool:
        """Whether no other replica counts the same weights."""
        return self._scattered or self._mesh.dp.rank == 0

    def _parts(self) -> list[TargetSlice]:
        """Return the weights that this rank updates and that can become zero, in the order of the pieces."""
        return [
            TargetSlice(self._by_name[owned.name], slot.shard.held, owned.start, piece.master[part].cpu().numpy())
            for piece, _ in self._of
            for slot, part, owned in piece.parts()
            if owned.name in self._by_name
        ]

    def _selected(self, parts: list[TargetSlice], updates: int) -> list[Bits]:
        pattern, model = self.settings.pattern, self._model
        if pattern == "2:4":
            return [two_of_four(part) for part in parts]
        total, largest = self._over_world(MPI.SUM), self._over_world(MPI.MAX)
        if pattern == "unstructured":
            zeros = [self.settings.zeros(int(np.prod(target.shape)), updates) for target in self._targets]
            return largest_of_each(parts, self._targets, zeros, width=self._width, counts=self._counts, total=total)
        count = units(model, pattern)
        families = list(dict.fromkeys(target.family for target in self._targets))
        weights = sum(int(np.prod(target.shape)) for target in self._targets) // (count * len(families))
        return largest_units(
            parts,
            families,
            units=count,
            zeros=self.settings.zeros(count, updates),
            weights=weights,
            counts=self._counts,
            total=total,
            largest=largest,
        )

    def _over_world(self, op: MPI.Op) -> Callable[[Any], None]:
        def reduce(values: Any) -> None:
            flat = values.reshape(-1)
            self._mesh.world.all_reduce(flat, channel=self._exact, op=op).wait()

        return reduce

    def _share(self, own: Sequence[Bits]) -> None:
        """Tell the replicas the masks of the rank's pieces, and see that all replicas have the same."""
        for (piece, free), kept in zip(self._of, own, strict=True):
            self._set(piece, self._gathered(piece, free, kept) if self._scattered else kept)
        digest = hashlib.sha256(b"".join(formats.to_bitmap(self._kept(piece)).tobytes() for piece, _ in self._of))
        number = float(int.from_bytes(digest.digest()[:6], "little"))
        if len({one for (one,) in gather(self._mesh.dp, [number], self._exact)}) > 1:
            raise TransitError("replicas hold different masks: the messages of one would put values in wrong places")

    def _gathered(self, piece: Piece, free: Bits, kept: Bits) -> Bits:
        """Return the mask of the whole bucket, from that of each replica's piece."""
        group = self._mesh.replicas(piece.bucket.ep)
        if group.size == 1:
            return kept
        to, read = (
            (formats.to_places, formats.from_places)
            if self.settings.pattern == "2:4"
            else (lambda kept, free: formats.to_bitmap(kept), formats.from_bitmap)
        )
        sent: Bytes = to(kept, free[piece.owned])
        everyones = np.zeros(mask_bytes(kept.size) * group.size, np.uint8)
        group.all_gather(sent, everyones, channel=self._exact).wait()
        parts = zip(everyones.reshape(group.size, -1), cut_evenly(free.size, group.size), strict=True)
        try:
            return np.concatenate([read(bits, free[cut]) for bits, cut in parts])
        except MaskError as error:
            raise TransitError(f"a mask of sparse weights did not arrive as it was sent: {error}") from None

    def _set(self, piece: Piece, kept: Bits) -> None:
        """Give a piece the mask of its bucket."""
        group = self._mesh.replicas(piece.bucket.ep)
        mask = torch.from_numpy(np.ascontiguousarray(kept)).to(piece.bucket.values.device)
        if self._scattered:
            cuts = cut_evenly(kept.size, group.size)
            length, own = piece_length([int(kept[cut].sum()) for cut in cuts]), group.rank
        else:
            cuts, length, own = [slice(0, kept.size)], whole_length(int(kept.sum()), group.size), 0
        piece.packing = None if kept.all() else Packing(mask, cuts, length=length, own=own)

    def _kept(self, piece: Piece) -> Bits:
        """Return the mask of a piece's bucket."""
        if piece.packing is None:
            return np.ones(piece.bucket.values.numel(), np.bool_)
        found: Bits = piece.packing.kept.cpu().numpy()
        return found


def make_masks(model: Model, train: Train, *, mesh: Mesh, exact: Channel) -> MakeMasking | None:
    """Return the function that makes the masks of a rank's pieces; None if weights are dense."""
    prune = pruning(train)
    if prune is None:
        return None
    return lambda pieces, scattered: Masks(prune, model, mesh=mesh, exact=exact, pieces=pieces, scattered=scattered)


def _free(piece: Piece, targets: dict[str, Target]) -> Bits:
    """Return which values of a piece's bucket can become zero."""
    free = np.zeros(piece.bucket.values.numel(), np.bool_)
    for slot in piece.bucket.slots:
        free[slot.span] = slot.shard.name in targets
    return free
