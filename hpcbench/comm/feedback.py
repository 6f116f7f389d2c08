"""Error feedback: the error of a message is added to the next one (arXiv 1901.09847, algorithm 2).

A two-shot reduction rounds twice: each rank rounds its contributions, and each owner rounds its sums. So there are two
residuals, as in 1-bit Adam (arXiv 2102.02888, section 4.2): the worker's belongs to the values that this rank sends to
be summed, the server's to the sums that it sends to all ranks. Both have the shape of the vector, so that each
parameter has its own part of them, whatever the plan cuts.
"""

from importlib import import_module
from typing import Any

import numpy as np

from hpcbench.comm.arrays import Array
from hpcbench.contract.shards import ElementRange


class Feedback:
    """Residuals of one vector of values on one rank.

    Parameters
    ----------
    n
        Elements of the vector.
    like
        An array of torch or CuPy whose memory the residuals share; by default they lie in the host's.

    Attributes
    ----------
    sent, summed : ndarray
        Residuals of the worker and of the server, float32, shape (n,). Pages that no message touches are never
        allocated by the system.
    """

    def __init__(self, n: int, like: Any = None) -> None:
        self.sent: Array = _zeros(n, like)
        self.summed: Array = _zeros(n, like)

    def worker(self, span: ElementRange) -> Array:
        """Return the residual of a contribution of this rank."""
        return self.sent[span.start : span.stop]

    def server(self, span: ElementRange) -> Array:
        """Return the residual of a sum that this rank owns."""
        return self.summed[span.start : span.stop]

    def forget(self) -> None:
        """Set the residuals to zero, after a step whose gradients were discarded."""
        self.sent[...] = 0
        self.summed[...] = 0


def _zeros(n: int, like: Any) -> Any:
    if like is None or isinstance(like, np.ndarray):
        return np.zeros(n, dtype=np.float32)
    library = import_module(type(like).__module__.split(".")[0])
    where = {"device": like.device} if library.__name__ == "torch" else {}
    return library.zeros(n, dtype=library.float32, **where)
