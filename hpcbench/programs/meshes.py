"""Names of mesh dimensions that span all ranks.

For such a dimension, DeviceMesh uses the default group, which has no name.
"""

import functools
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from hpcbench.programs.dimensions import SEVERAL

_MAKES_GROUP = "_init_one_process_group"
"""Method through which all meshes (new, flattened and unflattened) create the group of a dimension."""
log = logging.getLogger("hpcbench.torch")


class MeshNames:
    """Names that meshes assign to groups. All ranks create the same meshes in the same order.

    Parameters
    ----------
    on_change
        Callback that runs when a mesh has named a group.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._names: dict[str, set[str]] = defaultdict(set)
        self._real: dict[str, Any] = {}

    def watch(self) -> None:
        """Inspect each new mesh from now on."""
        if _MAKES_GROUP not in vars(DeviceMesh):
            log.warning(
                "hpcbench: this version of PyTorch does not report the names of meshes over all ranks: give their "
                "dimensions in a groups file"
            )
            return
        self._real = {name: vars(DeviceMesh)[name] for name in ("__init__", _MAKES_GROUP)}
        init, makes_group = self._real["__init__"], getattr(DeviceMesh, _MAKES_GROUP)

        @functools.wraps(init)
        def watched_init(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> None:
            init(mesh, *args, **kwargs)
            self._look(mesh)

        @functools.wraps(makes_group)
        def watched_group(layout: Any, ranks: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            group = makes_group(layout, ranks, name, *args, **kwargs)
            if group is not None and layout.numel() == dist.get_world_size() > 1:
                self._add(group, name)
            return group

        setattr(DeviceMesh, "__init__", watched_init)  # noqa: B010 - a method is not assigned to otherwise
        setattr(DeviceMesh, _MAKES_GROUP, staticmethod(watched_group))

    def unwatch(self) -> None:
        """Stop inspecting new meshes."""
        for name, method in self._real.items():
            setattr(DeviceMesh, name, method)

    def described(self, name: str, description: str) -> str:
        """Return the names of a group in meshes, or its description if no mesh names the group."""
        mesh_names = self._names.get(name)
        return description if not mesh_names else f"mesh_{' or '.join(sorted(mesh_names))}"

    def _look(self, mesh: DeviceMesh) -> None:
        if not dist.is_initialized() or mesh.size() != dist.get_world_size() or mesh.size() == 1:
            return
        if all(mesh.size(k) < mesh.size() for k in range(mesh.ndim)):
            self._add(dist.group.WORLD.group_name, SEVERAL)  # type: ignore[union-attr]

    def _add(self, group: str, name: str) -> None:
        self._names[group].add(name)
        self._on_change()
