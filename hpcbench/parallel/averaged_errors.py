"""Moving average of errors: the compensation of LoCo (arXiv 2407.04480).

Plain error feedback replaces the residual e of a message with the error r of the message. LoCo averages both: the new
residual is b e + (1 - b) r, and all residuals become zero after a number of updates. The codec already replaces e with
r, so this module keeps a copy of e until the message has been sent. The copies double the memory of the residuals. Both
residuals of a reduction are averaged: the residual of a rank's contribution, and the residual of the sums that the rank
owns.
"""

from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.parallel.buffers import to_tensor
from hpcbench.parallel.pieces import Piece


class AveragedErrors:
    """Average of the residuals of gradient messages over steps.

    Parameters
    ----------
    channel
        Channel of gradients, which sets the weight of the previous residuals and the number of updates between resets.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._before: dict[int, list[Tensor]] = {}

    def is_due(self, updates: int) -> bool:
        """Return whether residuals must be set to zero before the step that follows `updates` updates."""
        reset = self._channel.feedback_reset
        return bool(reset and updates and updates % reset == 0)

    def keep(self, piece: Piece) -> None:
        """Copy the residuals of a bucket before they are changed by its reduction."""
        if self._channel.feedback_average and piece.feedback:
            self._before[id(piece)] = [values.clone() for values in _residuals(piece)]

    def average(self, piece: Piece) -> None:
        """Average the residuals before and after a reduction.

        If `keep` made no copy, the residuals remain unchanged.
        """
        weight = self._channel.feedback_average
        for before, values in zip(self._before.pop(id(piece), ()), _residuals(piece), strict=False):
            values.mul_(1 - weight).add_(before, alpha=weight)


def _residuals(piece: Piece) -> tuple[Tensor, ...]:
    errors = (piece.feedback.sent, piece.feedback.summed) if piece.feedback else ()
    return tuple(map(to_tensor, errors))
