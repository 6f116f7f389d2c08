"""hpcbench: does compressing the training traffic pay, on this machine?"""

__version__ = "0.1.0"
