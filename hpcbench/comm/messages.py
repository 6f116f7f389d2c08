"""Messages between two ranks of a group. Each begins in the caller's thread, with a tag that the caller chooses."""

import math
from collections.abc import Sequence
from dataclasses import replace

from hpcbench.comm import steps
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.execute import carry_out
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.member import Member
from hpcbench.comm.memory import Slice
from hpcbench.comm.relay import Relay, hop
from hpcbench.comm.sample import sample_error
from hpcbench.comm.steps import Part, Step
from hpcbench.comm.vector import Exchanged
from hpcbench.comm.work import Work
from hpcbench.contract.shards import ElementRange


def send(own: Member, buf: Array, peer: int, tag: int, channel: Channel, feedback: Feedback | None) -> Work:
    """Encode `buf` and send it. `feedback` is there where `buf` is a contribution to a sum."""
    todo = steps.message(to=Part(peer, _whole(buf)), coded=own.coded(channel, buf.dtype))
    if feedback is not None:
        todo = [replace(step, combine=steps.Combine.SUM) for step in todo]
    return _begin(own, buf, buf, todo, tag, channel, feedback)


def recv(own: Member, buf: Array, peer: int, tag: int, channel: Channel) -> Work:
    """Receive into `buf`."""
    todo = steps.message(of=Part(peer, _whole(buf)), coded=own.coded(channel, buf.dtype))
    return _begin(own, buf, buf, todo, tag, channel)


def shift(own: Member, src: Array, dst: Array, by: int, tag: int, channel: Channel) -> Work:
    """Send `src` forward on the ring of ranks, and receive `dst` from behind."""
    if by % own.size == 0:
        place, (src, dst) = own.places.of(src, dst)
        place.copy(dst, src)
        return Work.nothing(channel)
    after, before = (own.rank + by) % own.size, (own.rank - by) % own.size
    to, of = Part(after, _whole(src)), Part(before, _whole(dst))
    todo = steps.message(to=to, of=of, coded=own.coded(channel, src.dtype))
    return _begin(own, src, dst, todo, tag, channel)


def pass_on(own: Member, src: Array, dst: Array, relay: Relay, tag: int, channel: Channel) -> Work:
    """Make one hop of a relay, or a shift where a link of it is not encoded."""
    after, before = (own.rank + 1) % own.size, (own.rank - 1) % own.size
    coded, to, of = own.coded(channel, src.dtype), Part(after, _whole(src)), Part(before, _whole(dst))
    if channel.codec.name == "none" or not (coded(to) and coded(of)):
        return shift(own, src, dst, 1, tag, channel)
    place, (src, dst) = own.places.of(src, dst)
    if relay.is_empty:
        sample_error(channel, channel.codec, place, src)
    call = own.call(own.comm, channel, channel.codec, place, src.dtype, Exchanged(src, dst))
    work = own.calls.at_once(hop(call, to, of, relay, tag), channel, place, call.tally, how="direct")
    place.settle()
    return work


def carried(own: Member, buf: Array, peer: int, tag: int, channel: Channel, *, receives: bool) -> Slice:
    """Send or receive `buf` within another operation, which waits for it."""
    place, (buf,) = own.places.of(buf)
    coded, part = own.coded(channel, buf.dtype), Part(peer, _whole(buf))
    todo = steps.message(of=part, coded=coded) if receives else steps.message(to=part, coded=coded)
    call = own.call(own.comm, channel, channel.codec, place, buf.dtype, Exchanged(buf, buf))
    counters, tally = channel.counters, call.tally
    counters.calls += 1
    counters.plain_calls += _any_plain(todo) and channel.codec.name != "none"
    yield from carry_out(call, todo, tag)
    for name in ("message_bytes", "wire_bytes", "coded_bytes", "network_bytes", "lost_overflows"):
        setattr(counters, name, getattr(counters, name) + getattr(tally, name))
    counters.encode_s += tally.encode_s
    counters.decode_s += tally.decode_s


def _begin(
    own: Member,
    src: Array,
    dst: Array,
    todo: Sequence[Step],
    tag: int,
    channel: Channel,
    feedback: Feedback | None = None,
) -> Work:
    place, (src, dst) = own.places.of(src, dst)
    sends_values = any(step.sends and not step.coded for step in todo)
    vector = Exchanged((place.snapshot(src) if sends_values else src).reshape(-1), dst.reshape(-1))
    call = own.call(own.comm, channel, channel.codec, place, src.dtype, vector, feedback)
    slice_, plain = carry_out(call, todo, tag), _any_plain(todo)
    work = own.calls.at_once(slice_, channel, place, call.tally, how="direct", plain=plain)
    place.settle()
    return work


def _any_plain(todo: Sequence[Step]) -> bool:
    return any(not step.coded for step in todo)


def _whole(buf: Array) -> ElementRange:
    return ElementRange(0, math.prod(buf.shape))
