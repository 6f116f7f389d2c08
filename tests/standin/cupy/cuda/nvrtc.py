"""The version of the compiler."""


def getVersion() -> tuple[int, int]:  # noqa: N802
    return 13, 0
