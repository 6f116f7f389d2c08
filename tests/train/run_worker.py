"""Script that runs hpcbench.train, so that tests can start it on ranks."""

import runpy

runpy.run_module("hpcbench.train", run_name="__main__")
