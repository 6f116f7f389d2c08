"""Runs a script on two ranks that are forked after one import of torch: forked.py SCRIPT ARGUMENTS."""

import os
import runpy
import socket
import sys

import torch  # noqa: F401 - once for both

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
child = os.fork()
rank = 0 if child else 1
own = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
os.environ.update({name: str(value) for name, value in own.items()})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
