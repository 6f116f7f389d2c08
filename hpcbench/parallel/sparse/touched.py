"""Record of the embedding rows that received a gradient in backward passes."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Index = npt.NDArray[np.int32]


class Touched:
    """Record of the rows that an embedding looks up.

    Parameters
    ----------
    table
        Embedding module, which maps tokens to vectors.
    rows
        Rows of the whole table that this rank holds.
    """

    def __init__(self, table: nn.Module, rows: slice) -> None:
        self._rows = rows
        self._tokens: list[Tensor] = []
        table.register_forward_hook(self._looked_up)

    def _looked_up(self, module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> None:
        if vectors.requires_grad:  # a schedule may look up other tokens before the gradients of these tokens arrive
            vectors.register_hook(partial(self._note, given[0]))  # type: ignore[no-untyped-call]

    def _note(self, tokens: Tensor, _: Any) -> None:
        self._tokens.append(tokens.detach().reshape(-1))

    def forget(self) -> None:
        """Discard all recorded rows."""
        self._tokens = []

    def take(self) -> Index:
        """Return the rows recorded since the last call, in ascending order.

        The indices are relative to the first row that this rank holds.
        """
        rows = self._rows
        if not self._tokens:
            return np.empty(0, np.int32)
        tokens = torch.unique(torch.cat(self._tokens))
        self._tokens = []
        here = tokens[(tokens >= rows.start) & (tokens < rows.stop)] - rows.start
        rows_here: Index = here.to("cpu", torch.int32).numpy()
        return rows_here
