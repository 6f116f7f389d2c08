"""Error feedback: the error of a message is added to the next message (arXiv 1901.09847, algorithm 2).

A two-shot reduction rounds twice: each rank rounds its contributions, and each owner rounds its sums. Therefore there
are two residuals, as in 1-bit Adam (arXiv 2102.02888, section 4.2). The worker residual belongs to the values that this
rank contributes to sums. The server residual belongs to the sums that this rank sends to all ranks. Both residuals have
the shape of the vector, so each parameter keeps its residual even if plans cut the vector differently.
"""

from importlib import import_module
from typing import Any

import numpy as np

from hpcbench.comm.arrays import Array
from hpcbench.contract.shards import ElementRange


class Feedback:
    """Error-feedback residuals of one vector on one rank.

    Parameters
    ----------
    n
        Number of elements of the vector.
    like
        A torch or CuPy array on the device that will hold the residuals. If None, the residuals are in host memory.
    sums
        Whether this rank may send sums. Otherwise, the server residual is empty.

    Attributes
    ----------
    sent, summed : ndarray
        Worker and server residuals, float32, shape (n,). Pages that no message touches are never allocated by the
        operating system.
    """

    def __init__(self, n: int, like: Any = None, *, sums: bool = True) -> None:
        self.sent: Array = _zeros(n, like)
        self.summed: Array = _zeros(n if sums else 0, like)

    def worker(self, span: ElementRange) -> Array:
        """Return the residual of this rank's contribution."""
        return self.sent[span.start : span.stop]

    def server(self, span: ElementRange) -> Array:
        """Return the residual of a sum that this rank owns."""
        return self.summed[span.start : span.stop]

    def forget(self) -> None:
        """Set the residuals to zero after a step whose gradients were discarded."""
        self.sent[...] = 0
        self.summed[...] = 0


def _zeros(n: int, like: Any) -> Any:
    if like is None or isinstance(like, np.ndarray):
        return np.zeros(n, dtype=np.float32)
    library = import_module(type(like).__module__.split(".")[0])
    where = {"device": like.device} if library.__name__ == "torch" else {}
    return library.zeros(n, dtype=library.float32, **where)
