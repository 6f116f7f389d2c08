"""Text from outside, made safe to show."""


def make_printable(words: str, limit: int = 300) -> str:
    """Return one line that is safe for a terminal: control characters become spaces, and a long text is cut."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in words[: limit * 4]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
