"""Whether "gradients are of low rank, activations are not" holds in the messages that a run kept.

A matrix counts as low where its effective rank is below `LOW` of that of Gaussian matrices of its shape. A half of the
sentence is decided if the median over matrices, with its 95 % interval by order statistics, lies on one side of `LOW`,
and so does the median of each shape. Keys and values that ranks of a context group exchange (CP) do not count: they lie
by head, so that a row of their matrices has a head's features, not those of a position. Gradients that are sums over
fewer tokens than their smaller dim do not count either: they have a low rank whatever is learned.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from hpcbench.bench.messages.anatomy import Findings
from hpcbench.bench.messages.spectrum import Spectrum
from hpcbench.contract.traffic import content_of

LOW = 0.5
"""Part of a Gaussian matrix's effective rank below which a matrix is called one of low rank."""
FEWEST = 6
"""Matrices from which on the median has a 95 % interval: with 5 the extremes hold it in 94 % of cases."""
CLAIM = '"gradients are of low rank, activations are not"'


@dataclass(frozen=True)
class Half:
    """What matrices of one content show."""

    matrices: int
    shapes: int
    median: float | None
    """Effective rank divided by that of Gaussian matrices of the same shape; None if there are too few matrices."""
    least: float | None
    """Lower end of the median's interval."""
    most: float | None
    by_shape: dict[str, float]
    """Median of each shape."""

    @property
    def low(self) -> bool | None:
        """Whether they are of low rank; None if it is not decided."""
        if self.least is None or self.most is None:
            return None
        if self.most < LOW and all(value < LOW for value in self.by_shape.values()):
            return True
        return False if self.least >= LOW and all(value >= LOW for value in self.by_shape.values()) else None


@dataclass(frozen=True)
class Judged:
    """Both halves of the sentence."""

    gradients: Half
    activations: Half
    of_activations: Half
    """Gradients of activations, which the sentence does not name."""
    too_few_tokens: int
    """Matrices of gradients that do not count."""
    steps: int

    @property
    def holds(self) -> bool | None:
        """Whether the sentence holds here; None if it is not shown."""
        low, other = self.gradients.low, self.activations.low
        if low is False or other is True:
            return False
        return True if low and other is False else None


def judge(findings: Findings) -> Judged:
    """Judge the sentence by all matrices of the findings."""
    gradients: list[Spectrum] = []
    activations: list[Spectrum] = []
    of_activations: list[Spectrum] = []
    few = 0
    for row in findings.rows:
        traffic = tuple(row.key.channel.split())
        content, kind = content_of(traffic), traffic[2]
        if content == "gradients" and kind == "GRAD":
            enough = [
                one
                for message in row.messages
                for one in message.spectra
                if message.tokens is None or message.tokens >= min(one.shape)
            ]
            few += len(row.spectra) - len(enough)
            gradients += enough
        elif content == "activations" and traffic[0] != "CP":
            (activations if kind == "ACT" else of_activations).extend(row.spectra)
    steps = len({row.key.step for row in findings.rows})
    return Judged(half(gradients), half(activations), half(of_activations), few, steps)


def half(spectra: Sequence[Spectrum]) -> Half:
    """What matrices of one content show."""
    by_shape = defaultdict(list)
    for one in spectra:
        by_shape[" x ".join(map(str, one.shape))].append(one.beside_control)
    medians = {shape: median(found) for shape, found in sorted(by_shape.items())}
    found = sorted(one.beside_control for one in spectra)
    if len(found) < FEWEST:
        return Half(len(found), len(medians), None, None, None, medians)
    outside = order(len(found))
    return Half(len(found), len(medians), median(found), found[outside], found[-1 - outside], medians)


def order(n: int) -> int:
    """Figures left out at either end of `n` sorted ones so that the rest holds the median in 95 % of cases."""
    below = 0
    tail = 1  # of 2^n, the ways in which no figure lies below the median
    while (tail + comb(n, below + 1)) * 40 <= 2**n:
        below += 1
        tail += comb(n, below)
    return below


def sentence(judged: Judged) -> str:
    """What these numbers say of the sentence; why they say nothing, where they are too few."""
    gradients, activations = judged.gradients, judged.activations
    for name, own in (("gradients", gradients), ("activations", activations)):
        if own.median is None:
            return (
                f"Not shown: {CLAIM} needs {FEWEST} matrices of each, and {_count(own.matrices, name)}"
                f"{_few(judged) if name == 'gradients' else ''}: keep more messages."
            )
    said = {True: "holds here", False: "does not hold here", None: "is not shown here"}[judged.holds]
    return (
        f"{CLAIM} {said}: beside Gaussian matrices of the same shape, gradients have {_shown(gradients)} of the "
        f"effective rank, and activations {_shown(activations)}; below {LOW:g} counts as low{_few(judged)}."
    )


def _count(n: int, name: str) -> str:
    return f"{name} have {n}"


def _few(judged: Judged) -> str:
    n = judged.too_few_tokens
    return f" ({n} more of gradients are sums over fewer tokens than dims and do not count)" if n else ""


def _shown(own: Half) -> str:
    shapes = list(own.by_shape.values())
    over = f"{own.shapes} shapes from {min(shapes):.2f} to {max(shapes):.2f}" if own.shapes > 1 else "one shape"
    return f"{own.median:.2f} ({own.least:.2f} to {own.most:.2f}, {own.matrices} matrices, {over})"
