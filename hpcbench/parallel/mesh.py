"""The process mesh: which ranks work together in each parallel dimension."""

from mpi4py import MPI

from hpcbench.comm.group import Group
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.contract.grid import Axes
from hpcbench.contract.layout import Layout


class Mesh:
    """The groups of one rank.

    Parameters
    ----------
    comm
        ``layout.ranks`` ranks. It is split, never used itself.
    layout
        Sizes of the axes.
    progress
        Drives the operations of its groups.
    links
        What their plans are chosen by.
    places
        Where what they send may lie; by default the host, and GPUs of which the MPI library knows nothing.

    Attributes
    ----------
    dp, tp, pp, world : Group
        The ranks that differ from this one in that coordinate only; all of them.
    ends : Group
        First and last stage of this rank's pipeline, for the ranks of these stages; alone for the others.
    grid : Grid
        The tensor-parallel ranks.
    places : Places
        Of all these groups.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        layout: Layout,
        progress: Progress,
        links: Links = DEFAULT,
        places: Places | None = None,
    ) -> None:
        if comm.size != layout.ranks:
            raise ValueError(f"the layout needs {layout.ranks} ranks, the communicator has {comm.size}")
        self.layout = layout
        self.rank = comm.rank
        self.places = shared = places or Places()
        pp, dp, tp = layout.coordinates(comm.rank)

        def group(color: int, key: int) -> Group:
            return Group(comm.Split(color, key), progress, links, shared)

        self.world = group(0, comm.rank)
        self.tp = group(pp * layout.dp + dp, tp)
        self.dp = group(pp * layout.tp + tp, dp)
        self.pp = group(dp * layout.tp + tp, pp)
        self.grid = grid = layout.grid
        self._over: dict[Axes, Group] = {("t",): self.tp}
        if grid.mode != "1d":
            for axes in sorted({*((axis,) for axis in grid.axes), *grid.sums}):
                others = grid.index(tp, grid.others(axes))
                self._over[axes] = group(comm.rank - tp + others, grid.index(tp, axes))
        is_end = pp in (0, layout.pp - 1)
        self.ends = group(dp * layout.tp + tp if is_end else layout.ranks + comm.rank, pp)

    def over(self, axes: Axes) -> Group:
        """The ranks of the tensor grid that differ from this one along these axes only, the last one the fastest."""
        return self._over[axes]

    @property
    def first_stage(self) -> bool:
        return self.pp.rank == 0

    @property
    def last_stage(self) -> bool:
        return self.pp.rank == self.pp.size - 1
