"""Changes of activations between pipeline stages since a sample was last seen: AQ-SGD (arXiv 2206.01299).

Both ranks at a boundary keep the last decoded activation of each training sample. The sender encodes the difference
from the kept activation, and both ranks add the decoded difference to their copies. A sample that is new or not kept is
sent as the difference from zero. The first samples are kept until their number reaches the limit of the rule. The
training samples recur in cycles. If the latest samples were kept instead, each sample would be discarded before it
recurs.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.policy import Policy
from hpcbench.parallel.buffers import to_buffer, to_tensor

_Key = tuple[str, int]
"""A boundary with a direction, and the index of a sample."""


class SampleChanges:
    """Activations that this rank has sent or received, by boundary and sample.

    Parameters
    ----------
    channel
        Channel of activations. The channel's rule sets the number of samples to keep for each boundary.
    like
        Tensor on the device of the activations.
    """

    def __init__(self, channel: Channel, like: Tensor) -> None:
        self._channel, self._like = channel, like
        self._kept: dict[_Key, Tensor] = {}
        self._sent: list[tuple[str, Sequence[int], Tensor, Any]] = []

    @property
    def active(self) -> bool:
        """Whether changes are sent instead of activations. Evaluation sends activations."""
        return self._channel.sample_changes > 0 and torch.is_grad_enabled()

    def subtract(self, x: Tensor, boundary: int, samples: Sequence[int]) -> Any:
        """Return a buffer with the changes of activations [b, s, h] that this rank sends.

        After the message has been sent, the buffer contains the decoded changes, which `finish` adds to the kept
        activations.
        """
        values = to_tensor(to_buffer(x))
        side = f"to {boundary}"
        before = self._before(side, samples, values)
        buffer = to_buffer(values - before)
        self._sent.append((side, samples, before, buffer))
        return buffer

    def finish(self) -> None:
        """Add the decoded changes after all messages of a step have been sent."""
        for side, samples, before, buffer in self._sent:
            self._keep(side, samples, before + to_tensor(buffer).view(before.shape))
        self._sent.clear()

    def add(self, buffer: Any, boundary: int, samples: Sequence[int]) -> Any:
        """Return a buffer with the activations, given a buffer with the decoded changes that this rank received."""
        changes = to_tensor(buffer)
        side = f"from {boundary}"
        after = self._before(side, samples, changes) + changes
        self._keep(side, samples, after)
        return to_buffer(after)

    def follow_changes(self, policy: Policy) -> None:
        """Discard the activations if they are treated differently in this step than in the previous step."""
        if policy.has_changed(self._channel):
            self.forget()

    def forget(self) -> None:
        """Discard the activations after a step with values that are not finite."""
        self._kept.clear()

    @property
    def nbytes(self) -> int:
        """Size of the kept activations in bytes."""
        return sum(values.nbytes for values in self._kept.values())

    def save(self) -> dict[str, Tensor]:
        """Return the kept activations for a checkpoint."""
        return {f"{side} {sample}": values.to("cpu", copy=True) for (side, sample), values in self._kept.items()}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load saved activations."""
        self._kept = {}
        for name, values in saved.items():
            side, _, sample = name.rpartition(" ")
            self._kept[side, int(sample)] = values.to(self._like.device, copy=True)

    def _before(self, side: str, samples: Sequence[int], like: Tensor) -> Tensor:
        """Return the last activations of the samples, with zeros for samples that are not kept."""
        nothing = torch.zeros_like(like[0])
        return torch.stack([self._kept.get((side, sample), nothing) for sample in samples])

    def _keep(self, side: str, samples: Sequence[int], values: Tensor) -> None:
        room = self._channel.sample_changes - sum(key[0] == side for key in self._kept)
        for sample, activation in zip(samples, values, strict=True):
            if (side, sample) in self._kept:
                self._kept[side, sample] = activation.clone()
            elif room > 0:
                self._kept[side, sample] = activation.clone()
                room -= 1
