"""Sum of the whole gradient of a bucket over its replicas."""

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
    """Start to sum the buffers of the replicas (a collective call).

    Parameters
    ----------
    piece
        Piece of the bucket that this rank owns.
    buffer
        Values of this rank, which must not change until the sum has arrived.
    group, channel
        Group of the replicas, and channel of the message.
    scattered
        Whether this rank needs only the sum of its own piece. Otherwise, the sum overwrites the values in `buffer`.
    residuals
        Residuals of error feedback, or None if error feedback is not used.
    """
    if scattered:
        result = room((len(buffer) // group.size,), like=piece.bucket.values)
        work = group.reduce_scatter(buffer, result, channel=channel, feedback=residuals)
    else:
        result = buffer
        work = group.all_reduce(buffer, channel=channel, feedback=residuals)
    return Reduction(to_tensor(result), work, buffer, residuals=residuals)
