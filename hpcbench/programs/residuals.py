"""Error feedback for programs without parameter names, with separate residuals for each call.

Gradients are reduced in the same order in every step. A call is therefore identified by its size and its position among
calls of that size. Positions are counted from the start of the backward pass or, outside autograd, from the optimizer's
last step. Without a PyTorch optimizer, a call is identified by its memory address. Residuals are local: ranks need not
agree on them.
"""

from collections.abc import Hashable

import torch

from hpcbench.comm.feedback import Feedback

MOST = 4096
"""Maximum number of vectors with residuals per group, which limits memory if the order of calls is irregular."""


class Residuals:
    """The residuals of one group."""

    def __init__(self) -> None:
        self._feedback: dict[Hashable, Feedback] = {}
        self._pass = -1
        self._seen: dict[Hashable, int] = {}
        self._steps = False

    def of(self, operation: str, tensor: torch.Tensor) -> Feedback:
        """Return the residuals for a call's values."""
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
        """Restart the counting of positions after an optimizer step."""
        self._seen.clear()
        if not self._steps:
            self._steps = True
            self._feedback = {key: feedback for key, feedback in self._feedback.items() if "at" not in key}  # type: ignore[operator]
