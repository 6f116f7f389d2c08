"""Which residuals belong to a call: error feedback for programs that name no parameters.

Gradients are reduced in the same order in every backward pass. So within one backward pass a call is known by its size
and by how many calls of that size came before. Calls outside of autograd are known by the memory of their values. The
residuals are this rank's own affair: the ranks need not agree on them.
"""

from collections.abc import Hashable

import torch

from hpcbench.comm.feedback import Feedback


class Residuals:
    """The residuals of one group."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Feedback] = {}
        self._pass = -1
        self._seen: dict[Hashable, int] = {}

    def of(self, operation: str, tensor: torch.Tensor) -> Feedback:
        """The residuals of a call's values."""
        backward = torch._C._current_graph_task_id()
        kind = (operation, tensor.numel(), tensor.dtype)
        key: Hashable = (*kind, "at", tensor.data_ptr())
        if backward >= 0:
            if backward != self._pass:
                self._pass = backward
                self._seen.clear()
            place = self._seen.get(kind, 0)
            self._seen[kind] = place + 1
            key = (*kind, place)
        if key not in self._kept:
            self._kept[key] = Feedback(tensor.numel())
        return self._kept[key]
