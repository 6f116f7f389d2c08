"""How the runs of a scheme train: the study's settings, the scheme's optimizer, and what follows from both."""

from collections.abc import Callable

from hpcbench.errors import UserError
from hpcbench.study.schema import Scheme, Train
from hpcbench.study.yaml12 import Path_


def settled(train: Train, scheme: Scheme, where: Callable[[Path_], str]) -> Train:
    """The study's settings for a scheme, with all that depends on their optimizer filled in.

    Parameters
    ----------
    where
        ``file:line`` of a path of the study.

    Raises
    ------
    UserError
        The optimizer cannot work so, or messages are not of the precision that is asked for.
    """
    rounded = train.comm_precision not in ("auto", "fp64" if train.precision == "fp64" else "fp32")
    if scheme.environment and rounded:
        raise UserError(
            f"{where(('train', 'comm_precision'))}: train.comm_precision: a scheme with an environment is carried by "
            f"the MPI library, which does not round to {train.comm_precision}: leave it at auto"
        )
    optimizer = scheme.optimizer or train.optimizer
    if optimizer != "onebit-adam":
        return train.model_copy(update={"optimizer": optimizer, "freeze_step": None})
    if train.zero:
        raise UserError(
            f"{where(('train', 'zero'))}: train.zero: 1-bit Adam averages whole momenta, and stage {train.zero} cuts "
            "them up: set it to 0, or train with another optimizer"
        )
    freeze_step = train.freeze_step or max(train.steps // 5, train.warmup_steps, 1)
    if freeze_step >= train.steps:
        raise UserError(
            f"{where(('train', 'freeze_step'))}: train.freeze_step: a variance that is frozen after {freeze_step} "
            f"updates leaves none of {train.steps} steps to average momenta in: lower it"
        )
    return train.model_copy(update={"optimizer": optimizer, "freeze_step": freeze_step})
