"""Messages that leave out what a mask sets to zero: both ends know the mask, so that values alone travel.

Where a bucket is cut into pieces, each piece's values lie together, and every piece takes as much room as the one that
keeps the most, because all pieces of a collective are equal. What is left over is zero.
"""

from collections.abc import Sequence

from torch import Tensor

from hpcbench.comm.feedback import Feedback
from hpcbench.parallel.buffers import residuals, to_tensor


class Packing:
    """The mask of a bucket, and the place of each kept value in its messages.

    Parameters
    ----------
    kept
        Which values travel, [n], bool, on the device of the bucket.
    cuts
        The pieces whose values lie together.
    length
        Room of each piece in a message.
    own
        Number of the piece that this rank updates.
    """

    def __init__(self, kept: Tensor, cuts: Sequence[slice], *, length: int, own: int) -> None:
        self.kept, self.length = kept, length
        self._cuts, self._own = cuts, own
        self.counts = [int(kept[cut].sum()) for cut in cuts]

    @property
    def elements(self) -> int:
        """Elements of a message of the whole bucket."""
        return self.length * len(self._cuts)

    @property
    def own(self) -> Tensor:
        """The mask of the piece that this rank updates."""
        return self.kept[self._cuts[self._own]]

    def pack(self, values: Tensor) -> Tensor:
        """The message of a bucket's values [n]: [elements]."""
        packed = values.new_zeros(self.elements)
        for i, (cut, count) in enumerate(zip(self._cuts, self.counts, strict=True)):
            packed[i * self.length : i * self.length + count] = values[cut][self.kept[cut]]
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """A bucket's values [n] from a message: those that did not travel are zero."""
        values = packed.new_zeros(self.kept.numel())
        for i, (cut, count) in enumerate(zip(self._cuts, self.counts, strict=True)):
            values[cut].masked_scatter_(self.kept[cut], packed[i * self.length : i * self.length + count])
        return values

    def pack_own(self, values: Tensor) -> Tensor:
        """The message of the values of this rank's piece: [length]."""
        packed = values.new_zeros(self.length)
        packed[: self.counts[self._own]] = values[self.own.to(values.device)]
        return packed

    def unpack_own(self, packed: Tensor) -> Tensor:
        """The values of this rank's piece from a message."""
        kept = self.own.to(packed.device)
        return packed.new_zeros(kept.numel()).masked_scatter_(kept, packed[: self.counts[self._own]])

    def pack_residuals(self, feedback: Feedback, like: Tensor) -> Feedback:
        """The residuals of the kept values, in the order of a message."""
        packed = residuals(self.elements, like)
        for mine, whole in ((packed.sent, feedback.sent), (packed.summed, feedback.summed)):
            to_tensor(mine).copy_(self.pack(to_tensor(whole)))
        return packed

    def unpack_residuals(self, packed: Feedback, feedback: Feedback) -> None:
        """Put the residuals of a message back to their values; those of zeros are zero."""
        for mine, whole in ((packed.sent, feedback.sent), (packed.summed, feedback.summed)):
            to_tensor(whole).copy_(self.unpack(to_tensor(mine)))


def clear(tensors: Sequence[Tensor], kept: Tensor) -> None:
    """Set what is not kept to zero in each tensor, even if it is not a number."""
    gone = ~kept
    for values in tensors:
        values.masked_fill_(gone.to(values.device), 0)
