"""The process mesh: the groups of ranks in each parallel dimension."""

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
        Communicator of ``layout.ranks`` ranks. It is copied, and never used itself.
    layout
        Sizes of the axes.
    progress
        Driver of the operations of the groups.
    links
        Speeds of links and codecs, from which plans are chosen.
    places
        Places that the groups' arrays may lie in; by default the host, and GPUs whose memory MPI does not accept.

    Attributes
    ----------
    tp, pp, world : Group
        Groups of the ranks that differ from this one in that coordinate only, and the group of all ranks.
    dp : Group
        The replicas: all ranks that hold the same part of the model, for other samples or other positions. Their
        gradients are averaged, and ZeRO shards their states.
    sample_rank : int
        Number of the part of the samples that this rank computes. Ranks of a ``cp`` group have the same part.
    cp : Group or None
        The ranks that share the positions of samples; None if each has all of them.
    ep : Group or None
        Group of the neighbors in data parallelism that share the experts; None if each rank holds all. They have the
        same positions of their samples.
    ends : Group
        Group of the first and the last stage of this rank's pipeline. On other stages this group contains only the
        rank itself.
    grid : Grid
        The tensor-parallel ranks.
    places : Places
        Places of all these groups.
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
        """Free the communicators of all groups (a collective call, and the last one)."""
        self.world.free()

    def replicas(self, ep: int) -> Group:
        """Return the group of the ranks that hold the same part of a parameter and sum its gradients.

        Parameters
        ----------
        ep
            The ``ep`` of the parameter's `Shard`: 1, or the layout's ``ep`` for a parameter of an expert.
        """
        return self._replicas[ep]

    def over(self, axes: Axes) -> Group:
        """Return the group of the ranks of the tensor grid that differ from this one along these axes only.

        The last axis is the fastest.
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
