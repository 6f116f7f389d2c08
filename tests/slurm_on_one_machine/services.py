"""Services that Slurm requires: munge, and MariaDB for accounting. Both services use only a Unix socket."""

import os
import shlex
from pathlib import Path


def munge(directory: Path) -> tuple[list[str], list[str]]:
    """Create a key. Return the daemon's command, and the command of a client that succeeds when the daemon is ready."""
    place = directory / "munge"
    key = os.open(place / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(key, "wb") as file:
        file.write(os.urandom(128))
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
    options = [f"--{option}={place / name}" for option, name in files.items()]
    return ["munged", "--foreground", "--force", *options], ["munge", "-n", "-S", str(place / "socket")]


def data_base(directory: Path) -> tuple[list[str], list[str]]:
    """Return the commands for MariaDB, with an empty database for slurmdbd."""
    place = directory / "db"
    (place / "first.sql").write_text(
        "create database slurm;\ncreate user slurm@localhost identified by 'slurm';\n"
        "grant all on slurm.* to slurm@localhost;\n"
    )
    common = ["--no-defaults", "--user=root", f"--datadir={place}/data"]
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db"]
    serve = ["mariadbd", *common, f"--socket={place}/socket", f"--pid-file={place}/pid"]
    serve += [f"--init-file={place}/first.sql", "--skip-networking", "--skip-log-bin", "--performance-schema=OFF"]
    serve += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
    both = f"{shlex.join(install)} && exec {shlex.join(serve)}"
    return ["bash", "-c", both], ["mariadb", "--no-defaults", f"--socket={place}/socket", "-e", "use slurm"]
