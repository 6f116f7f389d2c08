"""Versions of the weights on one stage of a pipeline without a flush.

The model computes with the weights in the buckets. Other versions that are still needed are stashed. A stage that needs
another version exchanges the two, so that no version is held twice. Autograd keeps references to the buckets, not
copies, so before a backward pass the buckets must contain the version that its forward pass used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 1 << 18
"""Elements that are exchanged at a time: they stay in a core's cache."""


class MissingVersionError(RuntimeError):
    """A micro-batch needs weights that the stage does not hold."""


class Versions:
    """The weights of one stage by their version.

    Parameters
    ----------
    flats
        The flat buffers that the model's weights are views of.

    Attributes
    ----------
    newest : int
        Number of updates so far.
    loaded : int
        The version that lies in the buffers.
    most : int
        Largest number of versions that were held at a time.
    """

    def __init__(self, flats: Sequence[Tensor]) -> None:
        self._flats = flats
        self._stashed: dict[int, list[Tensor]] = {}
        self._spare: list[list[Tensor]] = []
        self.newest = self.loaded = 0
        self.most = 1

    @property
    def held(self) -> list[int]:
        """The versions that can be used, oldest first."""
        return sorted([*self._stashed, self.loaded])

    def use(self, version: int) -> None:
        """Let the model compute with a version.

        Raises
        ------
        MissingVersionError
            The version is not held.
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
        """Free the versions before this one. The newest stays."""
        if self.loaded < version and self.loaded != self.newest:
            self.use(self.newest)
        for old in [old for old in self._stashed if old < version and old != self.newest]:
            self._spare.append(self._stashed.pop(old))

    def begin_update(self, *, keep: bool) -> None:
        """Load the newest version, which an update will change. `keep` stashes it as it is now."""
        self.use(self.newest)
        if keep:
            stash = self._spare.pop() if self._spare else [torch.empty_like(flat) for flat in self._flats]
            for there, here in zip(stash, self._flats, strict=True):
                there.copy_(here)
            self._stashed[self.newest] = stash

    def end_update(self) -> None:
        """Make the loaded weights the next version."""
        self.newest += 1
        self.loaded = self.newest
        self.most = max(self.most, len(self.held))
        self._spare = self._spare[:1]

    def values(self, version: int) -> Sequence[Tensor]:
        """Return the buffers of a held version."""
        return self._flats if version == self.loaded else self._stashed[version]

    def restore(self, newest: int, oldest: int) -> dict[int, list[Tensor]]:
        """Restart with the loaded weights as version `newest`, and buffers for the versions from `oldest` on.

        The caller fills the returned buffers.
        """
        self.newest = self.loaded = newest
        self._stashed = {version: [torch.empty_like(flat) for flat in self._flats] for version in range(oldest, newest)}
        self.most = max(self.most, len(self.held))
        return self._stashed

    @property
    def stashed_bytes(self) -> int:
        """Count the bytes of the stashed versions at their largest number."""
        return (self.most - 1) * sum(flat.nbytes for flat in self._flats)


def _exchange(here: Tensor, there: Tensor) -> None:
    for start in range(0, here.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        copied = here[part].clone()
        here[part].copy_(there[part])
        there[part].copy_(copied)
