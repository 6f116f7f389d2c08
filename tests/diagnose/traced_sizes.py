"""Sizes of the program of traced_program.py. The tests import only these: the program imports most of PyTorch."""

WIDTH, LAYERS, STEPS, ROWS, MICRO_BATCHES = 256, 4, 3, 64, 2
