"""Errors of activation gradients between pipeline stages: lazy error propagation of Optimus-CC (arXiv 2301.09830).

When a gradient crosses a boundary between two parts of the model, the sender keeps the error of the message. The error
is added to the gradient of the next micro-batch at the same boundary. As in the authors' program, the error of the last
micro-batch of a step is added to the first micro-batch of the next step.
"""

from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.policy import Policy
from hpcbench.parallel.buffers import residuals, to_tensor


class BoundaryErrors:
    """Errors of the gradients that this rank sends to previous stages.

    Parameters
    ----------
    channel
        Channel of activation gradients. The rule of the channel determines whether errors are kept.
    like
        Tensor on the device of the activations.
    """

    def __init__(self, channel: Channel, like: Tensor) -> None:
        self._channel, self._like = channel, like
        self._errors: dict[str, Feedback] = {}

    def of(self, boundary: int, elements: int) -> Feedback | None:
        """Return the error at a boundary for a message of `elements` values, or None without error feedback."""
        if not self._channel.feedback:
            return None
        error = self._errors.get(str(boundary))
        if error is None or to_tensor(error.sent).numel() != elements:  # a resumed run may change its micro-batch size
            error = self._errors[str(boundary)] = residuals(elements, self._like, sums=False)
        return error

    def follow_changes(self, policy: Policy) -> None:
        """Discard the errors if gradients are treated differently in this step than in the previous step."""
        if policy.has_changed(self._channel):
            self.forget()

    def forget(self) -> None:
        """Discard the errors, for example after a step whose gradients were discarded."""
        self._errors.clear()

    def scale(self, factor: float) -> None:
        """Multiply the errors by a factor after a change of the loss scale, which scales all gradients."""
        if factor != 1:
            for error in self._errors.values():
                error.sent *= factor

    @property
    def nbytes(self) -> int:
        """Size of the errors in bytes."""
        return sum(error.sent.nbytes for error in self._errors.values())

    def save(self) -> dict[str, Tensor]:
        """Return the errors for a checkpoint, keyed by boundary."""
        return {boundary: to_tensor(error.sent).to("cpu", copy=True) for boundary, error in self._errors.items()}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load saved errors."""
        self._errors.clear()
        for boundary, values in saved.items():
            self._errors[boundary] = residuals(values.numel(), self._like, sums=False)
            to_tensor(self._errors[boundary].sent).copy_(values)
