"""Where the time of a rank's steps goes."""

from dataclasses import dataclass


@dataclass
class Phases:
    """Seconds, summed over steps, by the host's clock: what a GPU was told to do is counted where it is waited for.

    Attributes
    ----------
    forward, backward
        In the passes, with their tensor-parallel traffic; what is recomputed is part of the backward pass.
    bubble
        In the passes, from when the stage wants a message of another one until it has it: the stage idles.
    reduction
        Waiting, after the last backward pass, for the gradients' reduction.
    optimizer
        From the gradient norm to the new weights, gathered by all replicas.
    step
        The whole: more than the sum of the others by what is between them.
    steps
        How many.
    """

    forward: float = 0.0
    backward: float = 0.0
    bubble: float = 0.0
    reduction: float = 0.0
    optimizer: float = 0.0
    step: float = 0.0
    steps: int = 0
