"""The sum of a whole bucket's gradient over its replicas."""

from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.parallel.buffers import Buffer, room, to_tensor
from hpcbench.parallel.pieces import Piece, Reduction


def start_sum(
    piece: Piece,
    buffer: Buffer,
    group: Group,
    channel: Channel,
    *,
    scattered: bool,
    residuals: Feedback | None,
) -> Reduction:
    """Begin to sum the replicas' buffers (a collective call).

    Parameters
    ----------
    piece
        The piece of the bucket that this rank owns.
    buffer
        The rank's own values, which must not change until the sum has arrived.
    group, channel
        The replicas, and the channel of the message.
    scattered
        Whether this rank needs the sum of its piece only. If not, the sum takes the place of the values.
    residuals
        Residuals of error feedback; None if there is none.
    """
    if scattered:
        result = room((len(buffer) // group.size,), like=piece.bucket.values)
        work = group.reduce_scatter(buffer, result, channel=channel, feedback=residuals)
    else:
        result = buffer
        work = group.all_reduce(buffer, channel=channel, feedback=residuals)
    return Reduction(to_tensor(result), work, buffer, residuals=residuals)
