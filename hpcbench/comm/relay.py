"""Blocks that travel around a ring of ranks.

Each block is encoded by its owner, and all other ranks forward the encoded bytes. A block is therefore rounded only
once, and every rank decodes identical values. `Group.pass_on` makes one hop.
"""

from dataclasses import dataclass

from hpcbench.comm.execute import Call
from hpcbench.comm.memory import Memory, Message, Slice
from hpcbench.comm.steps import PeerSpan


@dataclass
class Relay:
    """The last received block in encoded form, until the next hop sends it. Initially, the relay is empty."""

    message: Message | None = None
    memory: Memory | None = None
    """The borrowed memory that contains the message."""
    begun: bool = False
    """Whether the rank has sent its own block."""

    @property
    def is_empty(self) -> bool:
        """Whether the next hop sends the rank's own block."""
        return self.message is None

    def keep(self, message: Message | None, memory: Memory | None) -> None:
        """Hold a new message, and release the memory of the previous one."""
        if self.memory is not None:
            self.memory.give_back()
        self.message, self.memory = message, memory

    def end(self) -> None:
        """Release the memory of the last block, which need not be forwarded."""
        self.keep(None, None)


def hop(call: Call, to: PeerSpan, of: PeerSpan, relay: Relay, tag: int, memory: Memory | None = None) -> Slice:
    """Send a block and receive the next one.

    Parameters
    ----------
    call
        The call, whose vector contains the rank's own block and a buffer for the received block.
    to, of
        Spans of the sent and the received block.
    relay
        Relay with the block to send. If the relay is empty, the rank's own block is sent. Afterwards, the relay holds
        the received block.
    tag
        MPI tag of the messages. Concurrent hops between the same ranks need different tags.
    memory
        Memory of the messages. If None, the memory is created by `call.place`.
    """
    memory = memory or call.place.memory(call.codec, call.dtype, call.tally, sealed=call.topology.nodes > 1)
    inbox = memory.inbox(of.span.size, coded=True)
    varies = not call.codec.fixed_size
    coming = call.carrier.receive(inbox, of.peer, tag, varies=varies)
    leaving = relay.message
    if leaving is None:
        leaving = memory.encode(call.vector.read(to.span), None, call.next_seed())
        if leaving.pending is not None:
            yield leaving.pending
    call.count(to, leaving.wire_bytes, coded=True)
    sending = call.carrier.send(leaving.content, to.peer, tag, varies=varies)
    (status,) = yield [coming]
    message = memory.arrived(inbox, call.carrier.count(status), of.peer)
    memory.decode(message, call.vector.into(of.span))
    yield [sending]
    unfinished = memory.finish()
    if unfinished is not None:
        yield unfinished
    relay.keep(message, memory)
