"""The clusters that the tests of the batch system submit to."""

from collections.abc import Callable, Iterator

import pytest

from hpcbench.testing.slurm import Cluster, why_not


@pytest.fixture(scope="session")
def cluster(need: Callable[[str | None], None]) -> Iterator[Cluster]:
    """Three nodes with accounting."""
    need(why_not())
    with Cluster(3, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def forgetful(need: Callable[[str | None], None]) -> Iterator[Cluster]:
    """Two nodes without accounting, where nobody knows of a job any more that ended some seconds ago."""
    need(why_not())
    with Cluster(2, settings={"MinJobAge": 2}) as cluster:
        yield cluster
