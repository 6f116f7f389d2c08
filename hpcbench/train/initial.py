"""Initial weights, which do not depend on the layout.

Each value is a function of the seed, the global name of the parameter, and the index in the global tensor. A rank
computes only its own part, and all layouts start from the same model.
"""

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch

from hpcbench.contract.training import Model

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def random_bits(key: int, index: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return 64 random bits per index.

    The output function of splitmix64 (Steele et al., OOPSLA 2014) serves as a counter-based generator.
    """
    with np.errstate(over="ignore"):
        z = (index + np.uint64(1)) * _GOLDEN + np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
        return bits


def key_of(*parts: object) -> int:
    """Return a 64-bit key computed from the string representations of `parts`."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def normal(key: int, index: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return a standard normal value for each index, using the Box-Muller transform."""
    scale = 2.0**-53
    first = ((random_bits(key, 2 * index) >> np.uint64(11)) + np.uint64(1)) * scale  # (0, 1]
    second = (random_bits(key, 2 * index + np.uint64(1)) >> np.uint64(11)) * scale
    values: npt.NDArray[np.float64] = np.sqrt(-2 * np.log(first)) * np.cos(2 * math.pi * second)
    return values


def spread(name: str, config: Model) -> float:
    """Return the standard deviation of the initial values of a weight.

    The standard deviations are the same as in GPT-NeoX-20B: sqrt(2/(5h)) ("small init", arXiv 1910.05895), and 2/(l
    sqrt(h)) for layers that write to the residual stream ("Wang init").
    """
    if name.endswith(("attention.out.weight", "mlp.down.weight")):
        return 2 / (config.layers * math.sqrt(config.hidden))
    return math.sqrt(2 / (5 * config.hidden))


def values(
    name: str, shape: tuple[int, ...], *, held: tuple[slice, ...], config: Model, seed: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the initial values of part `held` of the parameter `name`: ones, zeros or normal values.

    `shape` is the shape of the whole parameter.
    """
    rows = [np.arange(size, dtype=np.uint64)[part] for size, part in zip(shape, held, strict=True)]
    if len(shape) == 1:
        value = "norm" in name and name.endswith("weight")
        return torch.full((len(rows[0]),), float(value), dtype=dtype)
    index = rows[0][:, None] * np.uint64(shape[1]) + rows[1][None, :]
    return torch.from_numpy(spread(name, config) * normal(key_of(seed, name), index)).to(dtype)
