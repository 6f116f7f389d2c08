"""Process mesh: the process groups of all parallel dimensions."""

from mpi4py import MPI

from hpcbench.comm.group import Group
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.contract.grid import Axes
from hpcbench.contract.layout import Layout


class Mesh:
    """The process groups of one rank.

    Parameters
    ----------
    comm
        Communicator of ``layout.ranks`` ranks. The mesh duplicates it and uses only the duplicate.
    layout
        Sizes of the parallel dimensions.
    progress
        Progress engine of the groups' operations.
    links
        Speeds of links and codecs, used to select plans.
    places
        Memory locations of the groups' arrays. By default, arrays may be in host memory or in GPU memory, and GPU-aware
        MPI is not used.

    Attributes
    ----------
    tp, pp, world : Group
        Tensor-parallel group, pipeline group, and the group of all ranks.
    dp : Group
        The replicas: all ranks that hold the same part of the model and process different samples or positions.
        Gradients are averaged over this group, and ZeRO shards states over it.
    sample_rank : int
        Index of the part of the samples that this rank processes. Ranks of a ``cp`` group process the same samples.
    cp : Group or None
        Ranks among which the positions of samples are divided, or None if each rank holds all positions.
    ep : Group or None
        Consecutive data-parallel ranks among which the experts are divided, or None if each rank holds all experts.
        These ranks hold the same positions of their samples.
    ends : Group
        Group of the first and the last stage of this rank's pipeline. On other stages, this group contains only the
        rank itself.
    grid : Grid
        Grid of the tensor-parallel ranks.
    places : Places
        Memory locations used by all these groups.
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
            raise ValueError(f"the layout needs {layout.ranks} ranks, but the communicator has {comm.size}")
        self.layout = layout
        self.rank = comm.rank
        self.places = shared = places or Places()
        pp, dp, tp = layout.coordinates(comm.rank)
        replicas = layout.replicas
        self.sample_rank = dp // layout.cp

        self.world = Group(comm.Dup(), progress, links, shared)
        group = self.world.split
        self.tp = group(pp * replicas + dp, tp)
        self.dp = group(pp * layout.tp + tp, dp)
        self.cp: Group | None = None
        if layout.cp > 1:
            self.cp = group((pp * layout.dp + self.sample_rank) * layout.tp + tp, dp % layout.cp)
        self.pp = group(dp * layout.tp + tp, pp)
        self.ep: Group | None = None
        self._replicas = {1: self.dp}
        if layout.ep > 1:
            holder, place = layout.expert_coordinates(dp)
            self.ep = group((pp * layout.expert_replicas + holder) * layout.tp + tp, place)
            self._replicas[layout.ep] = group((pp * layout.ep + place) * layout.tp + tp, holder)
        self.grid = grid = layout.grid
        self._over: dict[Axes, Group] = {("t",): self.tp}
        if grid.mode != "1d":
            for axes in sorted({*((axis,) for axis in grid.axes), *grid.sums}):
                others = grid.index(tp, grid.others(axes))
                self._over[axes] = group(comm.rank - tp + others, grid.index(tp, axes))
        is_end = pp in (0, layout.pp - 1)
        self.ends = group(dp * layout.tp + tp if is_end else layout.ranks + comm.rank, pp)

    def free(self) -> None:
        """Free the communicators of all groups. The call must be the last collective call."""
        self.world.free()

    def replicas(self, ep: int) -> Group:
        """Return the group of the ranks that hold the same part of a parameter and sum the gradients of this part.

        Parameters
        ----------
        ep
            `Shard.ep` of the parameter: the layout's ``ep`` for an expert parameter, 1 otherwise.
        """
        return self._replicas[ep]

    def over(self, axes: Axes) -> Group:
        """Return the group of ranks with the same tensor-grid coordinates as this rank, except along these axes.

        The coordinate along the last axis varies fastest.
        """
        return self._over[axes]

    @property
    def first_stage(self) -> bool:
        """Whether this rank is on the first pipeline stage."""
        return self.pp.rank == 0

    @property
    def last_stage(self) -> bool:
        """Whether this rank is on the last pipeline stage."""
        return self.pp.rank == self.pp.size - 1
