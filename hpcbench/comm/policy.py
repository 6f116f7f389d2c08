"""A policy maps the rules of a scheme to channels."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel, change_treatment, resolve_channel
from hpcbench.comm.message_sampler import MessageSampler
from hpcbench.comm.recorder import Recorder
from hpcbench.comm.rounding import is_half
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase, Traffic, find_content
from hpcbench.contract.treatment import Treatment


class Policy:
    """The channels of a scheme: one codec for each dimension, phase and kind. The last matching rule applies.

    If a rule begins or ends at a step, `begin_step` changes the channels.

    Parameters
    ----------
    scheme
        The scheme. The algorithm of the scheme applies to all reductions and gathers.
    dtypes
        Dtype in which values are sent, keyed by the messages' content (`training.CONTENTS`). If an entry is missing or
        None, the dtype of the values is unchanged.
    """

    def __init__(self, scheme: Scheme, dtypes: Mapping[str, np.dtype[Any] | None] | None = None) -> None:
        self._scheme = scheme
        self._dtypes = dtypes or {}
        self._step = 1
        self._channels: dict[Traffic, Channel] = {}
        self._recorder: Recorder | None = None
        self._sampler: MessageSampler | None = None

    def channel(self, dimension: Dimension, phase: Phase, kind: MessageKind, axis: str = "") -> Channel:
        """Return the channel for this traffic.

        `axis` is an axis of a tensor grid. The same arguments return the same object.
        """
        key: Traffic = (dimension, phase, kind, axis) if axis else (dimension, phase, kind)
        if key not in self._channels:
            self._channels[key] = resolve_channel(self._scheme, key, self._dtype_of(key), step=self._step)
            self._give_recorder(self._channels[key])
            self._give_sampler(self._channels[key])
        return self._channels[key]

    def begin_step(self, step: int) -> None:
        """Apply the scheme's rules for a step to all channels. Steps are numbered from 1."""
        self._step = step
        if len(self._scheme.change_steps) > 1:
            for traffic, channel in self._channels.items():
                change_treatment(channel, self._treatment(traffic, step))

    def has_changed(self, channel: Channel) -> bool:
        """Return whether messages of a channel are treated differently in this step than in the previous step."""
        step = self._step
        return step > 1 and self._treatment(channel.traffic, step) != self._treatment(channel.traffic, step - 1)

    def treatments(self, channel: Channel) -> list[Treatment]:
        """List the distinct treatments of a channel's messages over all steps, in order of first use."""
        half = self._is_half(channel.traffic)
        return list(dict.fromkeys(self._scheme.schedule(channel.traffic, half=half).values()))

    def _treatment(self, traffic: Traffic, step: int) -> Treatment:
        return self._scheme.treatment(traffic, half=self._is_half(traffic), step=step)

    def _is_half(self, traffic: Traffic) -> bool:
        dtype = self._dtype_of(traffic)
        return dtype is not None and is_half(dtype)

    def _dtype_of(self, traffic: Traffic) -> np.dtype[Any] | None:
        return self._dtypes.get(find_content(traffic) or "")

    def named(self, name: str) -> Channel:
        """Return the channel with this name. The name consists of the fields of the traffic, joined by spaces."""
        dimension, phase, kind, *axis = name.split()
        return self.channel(Dimension(dimension), Phase(phase), MessageKind(kind), *axis)

    def record(self, recorder: Recorder | None) -> None:
        """Attach a trace recorder to all channels. If None, detach the current recorder."""
        self._recorder = recorder
        for channel in self._channels.values():
            self._give_recorder(channel)

    def sample(self, sampler: MessageSampler) -> None:
        """Sample messages of all channels except exact channels, which are never encoded."""
        self._sampler = sampler
        for channel in self._channels.values():
            self._give_sampler(channel)

    def _give_sampler(self, channel: Channel) -> None:
        if self._sampler is not None and channel.dimension is not Dimension.EXACT:
            channel.sampler = self._sampler.add_channel(" ".join(channel.traffic))

    def _give_recorder(self, channel: Channel) -> None:
        channel.recorder = self._recorder.of(" ".join(channel.traffic)) if self._recorder else None

    @property
    def exact(self) -> Channel:
        """The channel for scalars, norms, flags and statistics."""
        return self.channel(Dimension.EXACT, Phase.STEP, MessageKind.OPTIM)

    @property
    def carries_overflow(self) -> bool:
        """Whether every codec of the scheme transmits NaN and infinity. The value is the same on all ranks."""
        return all(get_codec(rule.codec).carries_overflow for rule in self._scheme.all_rules)

    @property
    def lost_overflows(self) -> int:
        """Number of messages sent by this rank so far whose NaN or infinity was hidden from the receiver."""
        return sum(channel.counters.lost_overflows for channel in self._channels.values())

    def calls(self) -> dict[str, int]:
        """Return the number of calls so far on each channel, for a checkpoint.

        The seeds of stochastic rounding depend on these numbers.
        """
        return {" ".join(channel.traffic): channel.counters.calls for channel in self.channels}

    def load_calls(self, saved: dict[str, int]) -> None:
        """Restore the numbers returned by `calls`."""
        for name, calls in saved.items():
            self.named(name).counters.calls = calls

    @property
    def channels(self) -> list[Channel]:
        """All channels created so far."""
        return list(self._channels.values())
