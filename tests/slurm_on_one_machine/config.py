"""Configuration files of a one-machine cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.errors import UserError

CLUSTER = "hpcbench"

CONTROLLER = "ctl"
"""Host name of the controller."""

SETTINGS: Mapping[str, str | int] = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    # Without control groups, Slurm tracks child processes by their parents, and resource usage through /proc.
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "SlurmdParameters": "config_overrides",  # otherwise nodes with more CPUs than the machine are drained
    "SwitchType": "switch/none",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    "PropagateResourceLimits": "NONE",
    "JobRequeue": 1,
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "ReturnToService": 1,  # a crashed node is used again when it is back, but not a node that was taken down
    # Jobs start immediately, and a lost node is detected within seconds.
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0",
    "SlurmdTimeout": 3,
    "MessageTimeout": 5,
    "InactiveLimit": 0,
    "KillWait": 1,
    "Waittime": 0,
    "MinJobAge": 300,
    "OverTimeLimit": 0,
}
"""Settings of slurm.conf, except paths and names."""


def write(
    directory: Path,
    ports: Sequence[int],
    *,
    nodes: Sequence[str],
    cpus: int,
    memory: int,
    gpus: int,
    accounting: bool,
    partitions: Mapping[str, Mapping[str, str | int]],
    settings: Mapping[str, str | int],
) -> None:
    """Write all configuration files to `directory`.

    Parameters
    ----------
    ports
        Ports of the controller, of slurmdbd, and of each node.
    """
    clash = [name for name in _places(directory, ports[0]) if name in settings]
    if clash:
        raise UserError(f"a cluster's setting {clash[0]}: it is where the cluster itself lies, which cannot be changed")
    etc = directory / "etc"
    _save(etc / "hosts", ["127.0.0.1 localhost", f"127.0.0.1 {CONTROLLER} {' '.join(nodes)}"])
    # slurmd looks for control groups even if it does not use them. Without this setting, it does not start without
    # # them.
    _save(etc / "cgroup.conf", ["CgroupPlugin=cgroup/v1", "CgroupAutomount=no"])
    # Without a device file, Slurm finds no GPU and drains the node.
    devices = f"{directory}/gpu/fake[0-{gpus - 1}]"
    _save(etc / "gres.conf", [f"Name=gpu Type=fake File={devices}"] if gpus else [])
    lines = _assignments(_places(directory, ports[0]))
    if accounting:
        lines += _assignments(_accounting(directory, ports[1], gpus))
        _save(etc / "slurmdbd.conf", _assignments(_slurmdbd(directory, ports[1])))
        (etc / "slurmdbd.conf").chmod(0o600)  # otherwise slurmdbd does not start
    # By default, every job uses all memory of its nodes.
    lines += _assignments({**SETTINGS, "DefMemPerCPU": memory // cpus, **settings})
    lines += ["GresTypes=gpu"] if gpus else []
    gres = f"Gres=gpu:fake:{gpus}" if gpus else ""
    shape = f"CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} {gres}"
    for name, port in zip(nodes, ports[2:], strict=True):
        lines.append(f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} {shape} State=UNKNOWN")
    for k, (name, options) in enumerate(partitions.items()):
        given = {"Nodes": "ALL", "Default": "NO" if k else "YES", "MaxTime": "60", "State": "UP", **options}
        lines.append(f"PartitionName={name} {' '.join(_assignments(given))}")
    _save(etc / "slurm.conf", lines)


def _places(directory: Path, port: int) -> dict[str, str | int]:
    return {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{CONTROLLER}(127.0.0.1)",
        "SlurmctldPort": port,
        # Delay of a requeued job: by default two minutes; less than 5 s is refused.
        "AuthInfo": f"socket={directory}/munge/socket,cred_expire=5",
        "StateSaveLocation": f"{directory}/state",
        "SlurmdSpoolDir": f"{directory}/spool/%n",
        "TmpFS": f"{directory}/tmp/%n",
        "SlurmctldPidFile": f"{directory}/run/slurmctld.pid",
        "SlurmdPidFile": f"{directory}/run/%n.pid",
        "SlurmctldLogFile": f"{directory}/log/slurmctld.log",
        "SlurmdLogFile": f"{directory}/log/%n.log",
    }


def _accounting(directory: Path, port: int, gpus: int) -> dict[str, str | int]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": port,
        # Clients of slurmdbd look for the socket here, not in AuthInfo. Otherwise they hang.
        "AccountingStoragePass": f"{directory}/munge/socket",
        **({"AccountingStorageTRES": "gres/gpu"} if gpus else {}),
    }


def _slurmdbd(directory: Path, port: int) -> dict[str, str | int]:
    return {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={directory}/munge/socket",
        "DbdHost": CONTROLLER,
        "DbdAddr": "127.0.0.1",
        "DbdPort": port,
        "SlurmUser": "root",
        "LogFile": f"{directory}/log/slurmdbd.log",
        "PidFile": f"{directory}/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # the Unix socket of MYSQL_UNIX_PORT
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm",
    }


def _assignments(settings: Mapping[str, str | int]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def _save(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
