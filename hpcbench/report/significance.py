"""Student's t distribution from SciPy, and a correction for multiple tests."""

from collections.abc import Sequence
from typing import Any

from hpcbench.errors import UserError


def student_t_cdf(t: float, df: float) -> float:
    """Return the probability that Student's t with `df` degrees of freedom is at most `t`."""
    return float(_import_scipy().stdtr(df, t))


def student_t_quantile(p: float, df: float) -> float:
    """Return the quantile: the t for which `student_t_cdf` is `p`."""
    return float(_import_scipy().stdtrit(df, p))


def _import_scipy() -> Any:
    """Import SciPy on demand, because the import takes 0.2 s (`scipy.stats` another 0.35 s)."""
    # Means and tests are not SciPy's: `scipy.stats` rejects samples of one value. There are no SciPy wheels for POWER.
    try:
        import scipy.special
    except ImportError as error:
        raise UserError(f"intervals of repeated runs need SciPy ({error}): pip install scipy") from None
    return scipy.special


def holm(p: Sequence[Sequence[float]]) -> list[list[float]]:
    """Adjust p-values so that the familywise error rate is at most the significance level.

    The method is Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979). Holm's procedure is valid for
    dependent tests, such as tests with a common baseline. The hypotheses of a group are mutually exclusive, so at most
    one hypothesis is true. A group therefore counts as one hypothesis until all its hypotheses are rejected (Shaffer,
    Journal of the American Statistical Association 81, 1986).
    """
    adjusted = [[0.0] * len(group) for group in p]
    left = [len(group) for group in p]
    highest = 0.0
    for value, i, j in sorted((value, i, j) for i, group in enumerate(p) for j, value in enumerate(group)):
        highest = max(highest, min(1.0, sum(map(bool, left)) * value))
        adjusted[i][j] = highest
        left[i] -= 1
    return adjusted
