"""What is measured where ranks share cores: a message is under way while they compute, and only where it should be."""

import pytest
from mpi4py import MPI

from hpcbench.bench import shared_cores
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait


def test_a_message_is_under_way_while_ranks_compute_if_it_is_to_be_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, progress = MPI.COMM_SELF.Dup(), Progress(Wait.GIVE_WAY, background=True)
    seen: list[tuple[int, list[bool]]] = []

    def look(passes: int) -> None:
        seen.append((passes, [operation.done for operation in progress._operations]))

    monkeypatch.setattr(shared_cores, "_compute", look)
    for driven in (False, True):
        assert shared_cores._time_work(comm, progress, 1, 7, driven=driven) >= 0
    assert seen == [(7, []), (7, [False])]
    assert not progress._operations, "it has come"
    comm.Free()
