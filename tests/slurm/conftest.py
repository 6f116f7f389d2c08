"""Clusters to which the batch system tests submit."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from slurm_on_one_machine import Cluster, why_not


@pytest.fixture(scope="session")
def cluster_of_session(need: Callable[[str | None], None]) -> Iterator[Cluster]:
    """Three nodes with accounting.

    Jobs in ``gentle`` receive a signal before ``urgent`` preempts them. A job that must end is killed after ten
    seconds, because Slurm's default of thirty would slow the tests down.
    """
    need(why_not())
    partitions: dict[str, dict[str, str | int]] = {
        "batch": {},
        "gentle": {"GraceTime": 30},
        "urgent": {"PriorityTier": 2},
    }
    settings = {"KillWait": 10, "SlurmctldParameters": "preempt_send_user_signal"}
    with Cluster(3, accounting=True, partitions=partitions, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(cluster_of_session: Cluster) -> Iterator[Cluster]:
    """The session's cluster, which is idle before and after each module.

    During the module, this process uses the cluster's Slurm.
    """
    with _chosen(cluster_of_session):
        yield cluster_of_session
        cluster_of_session.run(["scancel", "--user=root"], check=True)
        cluster_of_session.wait_idle()


@pytest.fixture(scope="module")
def forgetful(need: Callable[[str | None], None]) -> Iterator[Cluster]:
    """Two nodes without accounting. Slurm forgets a job some seconds after its end."""
    need(why_not())
    with Cluster(2, settings={"MinJobAge": 2, "KillWait": 10}) as cluster, _chosen(cluster):
        yield cluster


@contextlib.contextmanager
def _chosen(cluster: Cluster) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield
