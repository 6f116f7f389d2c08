"""Rules for sending only the touched rows of the embedding's gradient."""

from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train


def find_row_obstacle(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Return why the embedding's complete gradient must be sent, or None if rows can be sent."""
    if model.tied:
        return Misfit(("model", "tied"), "the head gives every row of the shared weight a gradient: set tied to false")
    if tensor != "1d":
        return Misfit(("layout", "tensor"), f"{tensor} splits the rows of the embedding: use 1d")
    if train.optimizer == "onebit-adam":
        return Misfit(("train", "optimizer"), "1-bit Adam averages momenta, in which no row is zero: use adamw")
    if train.sync != "all-reduce":
        return Misfit(
            ("train", "sync"), f"{train.sync} sends gradients to a server without a reduction: use all-reduce"
        )
    if train.schedule in UNFLUSHED:
        return Misfit(("train", "schedule"), f"{train.schedule} does not support sending gradients as rows: use 1f1b")
    return None


def find_sparse_misfit(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Return why a run with ``sparse_gradients: always`` cannot send rows.

    Return None if the run can send rows, or if the setting has another value.
    """
    if train.sparse_gradients != "always":
        return None
    misfit = find_row_obstacle(model, train, tensor)
    return misfit and Misfit(misfit.field, f"{misfit.problem}, or set train.sparse_gradients to auto or never")


def find_unused_rows(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Return why ``sparse_gradients: auto`` or ``measured`` sends the whole gradient, or None if it may send rows."""
    return find_row_obstacle(model, train, tensor) if train.sparse_gradients in ("auto", "measured") else None


def may_send_rows(model: Model, train: Train, tensor: str) -> bool:
    """Return whether the embedding's gradient may be sent as rows."""
    return train.sparse_gradients != "never" and find_row_obstacle(model, train, tensor) is None
