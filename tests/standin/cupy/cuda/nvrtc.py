"""The compiler version."""


def getVersion() -> tuple[int, int]:  # noqa: N802
    return 13, 0
