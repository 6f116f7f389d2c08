"""A small program that a launcher starts instead of a rank. `rank_server.py` then forks the rank.

To start in 20 ms, the program imports almost nothing: ``python -I -S rank_client.py SOCKET PROGRAM...``.
"""

import _socket
import array
import marshal
import os
import sys


def main(path: str, program: list[str]) -> int:
    """Request the rank and return its exit status. For a signal, the status is negative.

    Raises
    ------
    ConnectionError
        The server has ended.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(path)
    # A launcher communicates with a rank through open files. Their numbers are in the environment.
    files = [0, 1, 2, *(int(os.environ[name]) for name in ("PMI_FD", "HYDI_CONTROL_FD") if name in os.environ)]
    directory = os.getcwd()  # noqa: PTH109 (pathlib takes longer to import than all of this)
    place = (program, dict(os.environ), directory, list(os.sched_getaffinity(0)), files)
    message = marshal.dumps(place)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([len(message).to_bytes(4, "little")], [rights])
    connection.sendall(message)
    answer = connection.recv(4)
    if not answer:
        raise ConnectionError("no answer")
    return int.from_bytes(answer, "little", signed=True)


if __name__ == "__main__":
    try:
        status = main(sys.argv[1], sys.argv[2:])
    except ConnectionError as error:
        print(f"the server of ranks has ended: {error}", file=sys.stderr)
        status = 70
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)
