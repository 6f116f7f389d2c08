"""Driver of a job on its first node: it starts the runs one after another and records the states of job and runs.

Job scripts start it as ``python -m hpcbench.job``. Besides hpcbench itself, it imports only the standard library. All
imports are done before the first run, so a file server that fails later cannot stop the driver.
"""
