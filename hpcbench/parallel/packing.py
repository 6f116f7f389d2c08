"""Packing of messages, which omits masked values.

Sender and receiver have the same mask, so only the kept values are sent.

If a bucket is cut into pieces, the kept values of each piece are contiguous. A collective requires pieces with the same
length, so every piece is padded with zeros to the length of the longest piece.
"""

from collections.abc import Sequence

from torch import Tensor

from hpcbench.comm.feedback import Feedback
from hpcbench.parallel.buffers import residuals, to_tensor


class Packing:
    """Mask of a bucket, with the position of each kept value in messages.

    Parameters
    ----------
    kept
        Mask of the values that are sent, [n], bool, on the device of the bucket.
    cuts
        Slices of the pieces. The kept values of each piece are contiguous in a message.
    length
        Length of each piece in a message.
    own
        Index of the piece that this rank updates.
    """

    def __init__(self, kept: Tensor, cuts: Sequence[slice], *, length: int, own: int) -> None:
        self.kept, self.length = kept, length
        self._cuts, self._own = cuts, own
        self.counts = [int(kept[cut].sum()) for cut in cuts]

    @property
    def elements(self) -> int:
        """Number of elements in a message of the whole bucket."""
        return self.length * len(self._cuts)

    @property
    def own(self) -> Tensor:
        """Mask of the piece that this rank updates."""
        return self.kept[self._cuts[self._own]]

    def pack(self, values: Tensor) -> Tensor:
        """Pack the values of a bucket, [n], into a message, [elements]."""
        packed = values.new_zeros(self.elements)
        for i, (cut, count) in enumerate(zip(self._cuts, self.counts, strict=True)):
            packed[i * self.length : i * self.length + count] = values[cut][self.kept[cut]]
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Unpack the values of a bucket, [n], from a message. Masked values are zero."""
        values = packed.new_zeros(self.kept.numel())
        for i, (cut, count) in enumerate(zip(self._cuts, self.counts, strict=True)):
            values[cut].masked_scatter_(self.kept[cut], packed[i * self.length : i * self.length + count])
        return values

    def pack_own(self, values: Tensor) -> Tensor:
        """Pack the values of this rank's piece into a message, [length]."""
        packed = values.new_zeros(self.length)
        packed[: self.counts[self._own]] = values[self.own.to(values.device)]
        return packed

    def unpack_own(self, packed: Tensor) -> Tensor:
        """Unpack the values of this rank's piece from a message."""
        mask = self.own.to(packed.device)
        return packed.new_zeros(mask.numel()).masked_scatter_(mask, packed[: self.counts[self._own]])

    def pack_residuals(self, feedback: Feedback, like: Tensor) -> Feedback:
        """Pack the residuals of the kept values in message order."""
        packed = residuals(self.elements, like)
        for mine, values in ((packed.sent, feedback.sent), (packed.summed, feedback.summed)):
            to_tensor(mine).copy_(self.pack(to_tensor(values)))
        return packed

    def unpack_residuals(self, packed: Feedback, feedback: Feedback) -> None:
        """Unpack the residuals of a message. The residuals of masked values are zero."""
        for mine, values in ((packed.sent, feedback.sent), (packed.summed, feedback.summed)):
            to_tensor(values).copy_(self.unpack(to_tensor(mine)))


def clear(tensors: Sequence[Tensor], mask: Tensor) -> None:
    """Set the values outside the mask to zero in each tensor, even if they are NaN."""
    gone = ~mask
    for values in tensors:
        values.masked_fill_(gone.to(values.device), 0)
