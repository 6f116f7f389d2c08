"""Job driver. On the first node of a job, it starts the runs sequentially and records the states of job and runs.

Job scripts start the driver with ``python -m hpcbench.job``. The driver imports only hpcbench and the standard library.
All imports happen before the first run, so a later file server failure cannot stop the driver.
"""
