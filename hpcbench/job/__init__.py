"""Driver of a job on its first node: it starts the runs one after another and records the states of job and runs.

Job scripts start it as ``python -m hpcbench.job``. It imports only the standard library, before the first run: a file
server that fails later cannot stop it.
"""
