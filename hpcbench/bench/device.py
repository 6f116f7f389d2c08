"""Devices for codec measurements."""

from typing import Any, Protocol

import numpy as np

from hpcbench.bench.machine import find_cpu_model
from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import INSTRUCTION_SETS, Kernels, kernels
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array
from hpcbench.errors import UserError


class BenchDevice(Protocol):
    """A processor, its memory, and the available codecs."""

    description: str
    """Processor name, and the part that is used."""
    instruction_set: str
    """Kernel build."""

    def codec(self, name: str) -> Codec:
        """Return the codec with this name, or an object with the same operations. Unknown names raise ValueError."""
        ...

    def has(self, name: str) -> bool:
        """Return whether the device supports a codec."""
        ...

    def put(self, x: Array) -> Array:
        """Copy `x` to the device's memory."""
        ...

    def get(self, x: Array) -> Array:
        """Copy `x` to host memory."""
        ...

    def empty(self, n: int, dtype: np.dtype[Any]) -> Array:
        """Allocate a buffer for `n` values in the device's memory."""
        ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy within the device's memory."""
        ...

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        ...


class Cpu:
    """One CPU core of this machine, as a device.

    Parameters
    ----------
    build
        Kernel build to use.
    """

    def __init__(self, build: Kernels) -> None:
        self._build = build
        self.instruction_set = build.instruction_set
        self.description = f"one core of {find_cpu_model()}, kernels {build.instruction_set}"

    def codec(self, name: str) -> Codec:
        """Return the codec with this name and kernel build."""
        return get_codec(name, self._build)

    def has(self, name: str) -> bool:
        """Return True, because all codecs run on the CPU."""
        return True

    def put(self, x: Array) -> Array:
        """Return the array itself."""
        return x

    def get(self, x: Array) -> Array:
        """Return the array itself."""
        return x

    def empty(self, n: int, dtype: np.dtype[Any]) -> Array:
        """Return a new array."""
        return np.empty(n, dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Copy an array."""
        np.copyto(target, source)

    def wait(self) -> None:
        """Do nothing, because calls are synchronous."""


def open_device(name: str, isa: str | None = None) -> BenchDevice:
    """Open the device with this name.

    Parameters
    ----------
    name
        ``cpu`` or ``gpu``.
    isa
        CPU kernel build, or None for the fastest build on this processor.

    Raises
    ------
    UserError
        The device or its kernels are missing.
    """
    if name == "gpu":
        if isa is not None:
            raise UserError(f"--isa {isa}: applies only to --device cpu. Leave --isa out with --device gpu")
        from hpcbench.bench.gpu import BenchGpu

        return BenchGpu()
    if isa is not None and isa not in INSTRUCTION_SETS:
        raise UserError(f"--isa {isa}: unknown value: use one of {', '.join(INSTRUCTION_SETS)}")
    try:
        return Cpu(kernels(isa))
    except ValueError:
        raise UserError(f"--isa {isa}: not supported by this processor. Leave --isa out, or use generic") from None
    except ImportError as error:
        raise UserError(str(error)) from None
