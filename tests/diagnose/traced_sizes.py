"""Sizes in traced_program.py. The tests import only this module, because the program imports most of PyTorch."""

WIDTH, LAYERS, STEPS, ROWS, MICRO_BATCHES = 256, 4, 3, 64, 2
