"""Point-to-point messages of a group. The messages start in the caller's thread and use tags chosen by the caller.

NCCL has no tags. Over NCCL, both ranks start the messages between them in the same order.
"""

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
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.vector import Exchanged
from hpcbench.comm.work import Work
from hpcbench.contract.shards import ElementRange


def send(
    member: Member, buf: Array, peer: int, tag: int, channel: Channel, feedback: Feedback | None, *, decodes: bool
) -> Work:
    """Encode `buf` and send it. The error of the message replaces the residuals in `feedback`, if any."""
    todo = steps.message(to=PeerSpan(peer, _get_span(buf)), coded=member.coded(channel, buf.dtype))
    if decodes:  # the sender replaces its values, too
        todo = [replace(step, combine=steps.Combine.REPLACE) for step in todo]
    elif feedback is not None:
        todo = [replace(step, combine=steps.Combine.SUM) for step in todo]
    return _begin(member, buf, buf, todo, tag, channel, feedback)


def recv(member: Member, buf: Array, peer: int, tag: int, channel: Channel) -> Work:
    """Receive a message into `buf`."""
    todo = steps.message(of=PeerSpan(peer, _get_span(buf)), coded=member.coded(channel, buf.dtype))
    return _begin(member, buf, buf, todo, tag, channel)


def shift(member: Member, src: Array, dst: Array, by: int, tag: int, channel: Channel) -> Work:
    """Send `src` forward in the ring of ranks, and receive `dst` from the opposite direction."""
    if by % member.size == 0:
        place, (src, dst) = member.places.of(src, dst)
        place.copy(dst, src)
        return Work.nothing(channel)
    after, before = (member.rank + by) % member.size, (member.rank - by) % member.size
    to, of = PeerSpan(after, _get_span(src)), PeerSpan(before, _get_span(dst))
    todo = steps.message(to=to, of=of, coded=member.coded(channel, src.dtype))
    return _begin(member, src, dst, todo, tag, channel)


def pass_on(member: Member, src: Array, dst: Array, relay: Relay, tag: int, channel: Channel) -> Work:
    """Make one hop of a relay, or call `shift` if one of the two links is not encoded."""
    after, before = (member.rank + 1) % member.size, (member.rank - 1) % member.size
    coded, to, of = (
        member.coded(channel, src.dtype),
        PeerSpan(after, _get_span(src)),
        PeerSpan(before, _get_span(dst)),
    )
    if channel.codec.name == "none" or not (coded(to) and coded(of)):
        return shift(member, src, dst, 1, tag, channel)
    place, (src, dst) = member.places.of(src, dst)
    if relay.is_empty:
        sample_error(channel, channel.codec, place, src)
    call = member.call(member.comm, channel, channel.codec, place, src.dtype, Exchanged(src, dst))
    if member.streamed is not None and place.on_device:
        return member.streamed.hop(call, to, of, relay, channel)
    work = member.calls.at_once(hop(call, to, of, relay, tag), channel, place, call.tally, how="direct")
    place.settle()
    return work


def carried(member: Member, buf: Array, peer: int, tag: int, channel: Channel, *, receives: bool) -> Slice:
    """Send or receive `buf` as part of another operation."""
    place, (buf,) = member.places.of(buf)
    coded, part = member.coded(channel, buf.dtype), PeerSpan(peer, _get_span(buf))
    todo = steps.message(of=part, coded=coded) if receives else steps.message(to=part, coded=coded)
    call = member.call(member.comm, channel, channel.codec, place, buf.dtype, Exchanged(buf, buf))
    counters, tally = channel.counters, call.tally
    counters.calls += 1
    counters.plain_calls += _any_plain(todo) and channel.codec.name != "none"
    yield from carry_out(call, todo, tag)
    counters.add_messages(tally)


def _begin(
    member: Member,
    src: Array,
    dst: Array,
    todo: Sequence[PlanStep],
    tag: int,
    channel: Channel,
    feedback: Feedback | None = None,
) -> Work:
    place, (src, dst) = member.places.of(src, dst)
    sends_values = any(step.sends and not step.coded for step in todo)
    vector = Exchanged((place.snapshot(src) if sends_values else src).reshape(-1), dst.reshape(-1))
    call = member.call(member.comm, channel, channel.codec, place, src.dtype, vector, feedback)
    plain = _any_plain(todo)
    if member.streamed is not None and place.on_device:
        place.settle()
        return member.streamed.planned(call, [todo], channel, how="direct", plain=plain, may_change=True)
    slice_ = carry_out(call, todo, tag)
    work = member.calls.at_once(slice_, channel, place, call.tally, how="direct", plain=plain)
    place.settle()
    return work


def _any_plain(todo: Sequence[PlanStep]) -> bool:
    return any(not step.coded for step in todo)


def _get_span(buf: Array) -> ElementRange:
    return ElementRange(0, math.prod(buf.shape))
