"""Errors of the CUDA runtime."""


class CUDARuntimeError(RuntimeError):
    """An error reported by a CUDA call."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")


def invalid(why: str) -> CUDARuntimeError:
    return CUDARuntimeError("cudaErrorInvalidValue", why)


def unknown_handle(why: str) -> CUDARuntimeError:
    return CUDARuntimeError("cudaErrorInvalidResourceHandle", why)
