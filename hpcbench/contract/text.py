"""Words of strangers, made fit to be shown."""


def printable(words: str, limit: int = 300) -> str:
    """One line that a terminal can be trusted with: control characters become spaces, and it ends somewhere."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in words[: limit * 4]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
