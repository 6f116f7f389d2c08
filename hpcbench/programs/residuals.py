"""Error feedback for programs that name no parameters: the residuals of each call.

Gradients are reduced in the same order in every step. So a call is known by its size and by how many calls of that size
came before, since the backward pass began or, outside of autograd, since the optimizer's last step. A program without
an optimizer of PyTorch is known by the memory of its values. The residuals are this rank's own affair: the ranks need
not agree on them.
"""

from collections.abc import Hashable

import torch

from hpcbench.comm.feedback import Feedback

MOST = 4096
"""Number of vectors of a group that have residuals. A program without any order would fill the memory."""


class Residuals:
    """The residuals of one group."""

    def __init__(self) -> None:
        self._feedback: dict[Hashable, Feedback] = {}
        self._pass = -1
        self._seen: dict[Hashable, int] = {}
        self._steps = False

    def of(self, operation: str, tensor: torch.Tensor) -> Feedback:
        """Return the residuals of a call's values."""
        backward = torch._C._current_graph_task_id()
        if backward >= 0 and backward != self._pass:
            self._pass = backward
            self._seen.clear()
        kind = (operation, tensor.numel(), tensor.dtype)
        key: Hashable = (*kind, "at", tensor.data_ptr())
        if backward >= 0 or self._steps:
            place = self._seen.get(kind, 0)
            self._seen[kind] = place + 1
            key = (*kind, place)
        if key not in self._feedback:
            if len(self._feedback) >= MOST:
                del self._feedback[next(iter(self._feedback))]
            self._feedback[key] = Feedback(tensor.numel(), None if tensor.device.type == "cpu" else tensor)
        return self._feedback[key]

    def stepped(self) -> None:
        """Count calls from 0 again: the optimizer has taken a step."""
        self._seen.clear()
        if not self._steps:
            self._steps = True
            self._feedback = {key: feedback for key, feedback in self._feedback.items() if "at" not in key}  # type: ignore[operator]
