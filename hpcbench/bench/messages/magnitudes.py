"""How far the values of a message are apart: dynamic range and outliers."""

from dataclasses import dataclass

import numpy as np

from hpcbench.codecs.types import Array

FAR = 6.0
"""Standard deviations from the mean beyond which a value is an outlier: of Gaussian values two in 1e9 are."""


@dataclass(frozen=True)
class Magnitudes:
    """Over the finite values. A figure is None where it has no meaning, as that of a message of zeros."""

    log2_range: float | None
    """log2 of the largest magnitude over the smallest one that is not zero."""
    far: float | None
    """Share of values that lie further than `FAR` standard deviations from the mean."""
    peak: float | None
    """Largest magnitude divided by the root mean square."""
    kurtosis: float | None
    """Fourth central moment divided by the squared variance: 3 for Gaussian values."""
    not_finite: int
    """Number of NaN and infinities."""


def magnitudes(x: Array) -> Magnitudes:
    """Range and outliers of values, shape (n,)."""
    wide = x.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    lost = wide.size - finite.size
    sizes = np.abs(finite)
    rest = sizes[sizes > 0]
    if not rest.size:
        return Magnitudes(None, None, None, None, lost)
    largest = float(rest.max())
    scaled = finite / largest  # squares of what fp64 just holds would overflow
    centred = scaled - scaled.mean()
    squares = np.square(centred)
    variance = float(squares.mean())
    spreads = variance > (np.finfo(np.float64).eps * 8) ** 2  # a constant's mean is rounded
    return Magnitudes(
        float(np.log2(largest) - np.log2(rest.min())),
        float((squares > FAR**2 * variance).mean()) if spreads else 0.0,
        float(1 / np.sqrt(np.square(scaled).mean())),
        float(np.square(squares).mean() / variance**2) if spreads else None,
        lost,
    )
