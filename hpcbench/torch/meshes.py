"""Names of mesh dimensions that span all ranks: DeviceMesh gives those the default group, which tells no name."""

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

_SEVERAL = "several dimensions"


class MeshNames:
    """What meshes have said of groups. All ranks make the same meshes, in the same order.

    Parameters
    ----------
    said
        Is called when a mesh has said something.
    """

    def __init__(self, said: Callable[[], None]) -> None:
        self._said = said
        self._names: dict[str, set[str]] = defaultdict(set)
        self._real: Any = None

    def watch(self) -> None:
        """Look at each mesh that is made from now on."""
        real = self._real = DeviceMesh.__init__

        @functools.wraps(real)
        def init(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> None:
            real(mesh, *args, **kwargs)
            self._look(mesh)
            self._said()

        setattr(DeviceMesh, "__init__", init)  # noqa: B010 - a method is not assigned to otherwise

    def unwatch(self) -> None:
        """Look at no more meshes."""
        DeviceMesh.__init__ = self._real  # type: ignore[method-assign]

    def described(self, name: str, description: str) -> str:
        """The description of a group, or what the meshes say of it."""
        said = self._names.get(name)
        return description if not said else f"mesh_{' or '.join(sorted(said))}"

    def _look(self, mesh: DeviceMesh) -> None:
        names = mesh.mesh_dim_names
        if not names or not dist.is_initialized() or mesh.size() != dist.get_world_size() or mesh.size() == 1:
            return
        whole = [k for k in range(mesh.ndim) if mesh.size(k) == mesh.size()]
        if not whole:
            self._names[dist.group.WORLD.group_name].add(_SEVERAL)  # type: ignore[union-attr]
            return
        try:
            group = mesh.get_group(whole[0])
        except RuntimeError:
            return  # a mesh without groups
        self._names[group.group_name].add(names[whole[0]])
