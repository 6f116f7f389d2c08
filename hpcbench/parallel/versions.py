"""Weight versions of one stage of a pipeline without flush.

The model computes with the weights in the buckets, and other versions in use are stashed. To load another version, a
stage swaps it with the weights in the buckets, so no version is stored twice. Autograd keeps references to the buckets
instead of copies. Therefore, the buckets must contain the version of the forward pass before the corresponding backward
pass starts.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 1 << 18
"""Number of elements that are swapped at a time, small enough for the cache of a core."""


class MissingVersionError(RuntimeError):
    """A micro-batch needs a weight version that the stage does not hold."""


class Versions:
    """Weights of one stage, keyed by version.

    Parameters
    ----------
    flats
        Flat buffers that contain the weights of the model.

    Attributes
    ----------
    newest : int
        Newest version, which equals the number of updates.
    loaded : int
        Version in the buffers.
    most : int
        Maximum number of versions that were held at the same time.
    """

    def __init__(self, flats: Sequence[Tensor]) -> None:
        self._flats = flats
        self._stashed: dict[int, list[Tensor]] = {}
        self._spare: list[list[Tensor]] = []
        self.newest = self.loaded = 0
        self.most = 1

    @property
    def held(self) -> list[int]:
        """Available versions, oldest first."""
        return sorted([*self._stashed, self.loaded])

    def use(self, version: int) -> None:
        """Load a version into the buffers of the model.

        Raises
        ------
        MissingVersionError
            The version is not available.
        """
        if version == self.loaded:
            return
        if version not in self._stashed:
            raise MissingVersionError(f"version {version} of the weights was requested, but {self.held} are stored")
        stashed = self._stashed.pop(version)
        for here, there in zip(self._flats, stashed, strict=True):
            _exchange(here, there)
        self._stashed[self.loaded] = stashed
        self.loaded = version

    def forget_before(self, version: int) -> None:
        """Free all versions older than `version`. The newest version is always kept."""
        if self.loaded < version and self.loaded != self.newest:
            self.use(self.newest)
        for old in [old for old in self._stashed if old < version and old != self.newest]:
            self._spare.append(self._stashed.pop(old))

    def begin_update(self, *, keep: bool) -> None:
        """Load the newest version for an update. With `keep`, a copy of the version is stashed."""
        self.use(self.newest)
        if keep:
            stash = self._spare.pop() if self._spare else [torch.empty_like(flat) for flat in self._flats]
            for there, here in zip(stash, self._flats, strict=True):
                there.copy_(here)
            self._stashed[self.newest] = stash

    def end_update(self) -> None:
        """Declare the loaded weights to be the next version."""
        self.newest += 1
        self.loaded = self.newest
        self.most = max(self.most, len(self.held))
        self._spare = self._spare[:1]

    def values(self, version: int) -> Sequence[Tensor]:
        """Return the buffers of an available version."""
        return self._flats if version == self.loaded else self._stashed[version]

    def restore(self, newest: int, oldest: int) -> dict[int, list[Tensor]]:
        """Restart with the loaded weights as version `newest`, and allocate buffers for versions `oldest` and later.

        The caller fills the returned buffers.
        """
        self.newest = self.loaded = newest
        self._stashed = {version: [torch.empty_like(flat) for flat in self._flats] for version in range(oldest, newest)}
        self.most = max(self.most, len(self.held))
        return self._stashed

    @property
    def stashed_bytes(self) -> int:
        """Maximum number of bytes that the stashed versions have occupied."""
        return (self.most - 1) * sum(flat.nbytes for flat in self._flats)


def _exchange(here: Tensor, there: Tensor) -> None:
    for start in range(0, here.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        copied = here[part].clone()
        here[part].copy_(there[part])
        there[part].copy_(copied)
