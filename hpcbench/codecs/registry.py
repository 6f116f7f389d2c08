"""From a name in a study to a codec."""

from collections.abc import Callable
from importlib.metadata import entry_points

from hpcbench.codecs.base import Codec
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.library import kernels
from hpcbench.codecs.mpc import Mpc
from hpcbench.codecs.spec import parse
from hpcbench.codecs.zfp import Zfp

ENTRY_POINTS = "hpcbench.codecs"
"""Entry-point group of other packages' codecs: ``family = package:make``, called with what follows the colon of the
codec's name, or with an empty string."""


def get_codec(name: str) -> Codec:
    """Codec of a name: ours, else one that an installed package registers.

    Raises
    ------
    ValueError
        No such codec, or not with this parameter.
    ImportError
        It needs the compiled kernels and they are not there.
    """
    family, _, parameter = name.partition(":")
    for entry in entry_points(group=ENTRY_POINTS, name=family):
        make: Callable[[str], Codec] = entry.load()
        return make(parameter)
    spec = parse(name)
    if spec.family == "zfp" and spec.parameter is not None:
        return Zfp(spec.parameter)
    if spec.family == "mpc" and spec.parameter is not None:
        return Mpc(spec.parameter)
    return Identity()


def instruction_set() -> str:
    """Which build of the kernels is in use: ``avx512``, ``avx2``, ``sse2`` or ``generic``."""
    return kernels().instruction_set
