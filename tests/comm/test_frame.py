"""Tests that the message checksum detects modified and truncated messages, and is optional."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import frame
from hpcbench.comm.memory import HostMemory, Tally
from hpcbench.comm.scratch import Scratch
from hpcbench.errors import TransitError

FLOAT = np.dtype(np.float32)


def sealed(content: bytes) -> np.ndarray:
    buffer = np.zeros(len(content) + frame.BYTES + 5, np.uint8)
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    return frame.seal(buffer, len(content)).copy()


@given(st.binary(max_size=2000))
def test_a_sealed_message_is_opened(content: bytes) -> None:
    assert frame.opened(sealed(content), 3).tobytes() == content


@given(st.binary(max_size=500), st.data())
def test_any_flipped_bit_and_any_cut_is_found(content: bytes, data: st.DataObject) -> None:
    message = sealed(content)
    place = data.draw(st.integers(0, message.size - 1))
    flipped = message.copy()
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (flipped, message[:place]):
        with pytest.raises(TransitError, match="from rank 3"):
            frame.opened(damaged, 3)


@pytest.mark.parametrize("asked", [True, False])
def test_messages_are_longer_by_the_checksum_only_where_it_is_asked_for(asked: bool) -> None:
    codec, values = get_codec("int8:256"), np.linspace(-1, 1, 1000, dtype=np.float32)
    memory = HostMemory(codec, FLOAT, Scratch(), Tally(), sealed=asked)
    message = memory.encode(values, None, seed=0)
    assert message.wire_bytes == codec.wire_bytes(1000, FLOAT)
    assert message.content.size == message.wire_bytes + (frame.BYTES if asked else 0)
    assert memory.inbox(1000, coded=True).size == message.content.size
    damaged = message.content.copy()
    damaged[7] ^= 1
    if asked:
        with pytest.raises(TransitError):
            memory.arrived(damaged, damaged.size, 1)
    else:
        assert memory.arrived(damaged, damaged.size, 1).wire.size == message.wire_bytes
