"""The buffer type of groups: contiguous NumPy arrays in host memory."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
