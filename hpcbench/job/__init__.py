"""Job driver, which starts a job's runs sequentially on the first node, and records the states of the job and its runs.

Job scripts start the driver with ``python -m hpcbench.job``. The driver imports only hpcbench and the standard library.
All imports happen before the first run, so a later file server failure cannot stop the driver.
"""
