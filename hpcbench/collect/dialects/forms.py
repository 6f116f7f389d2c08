"""Formats that several frameworks share: fields separated by vertical bars, and the expression for a complete line."""

BAR = r"\|\s*{name}:\s*{value}\s*(?=\||$)"
"""A field between bars: ``| key: value |``."""
BARS = r"(?:\s*[^|:\s][^|:]{0,60}:\s*[^|\s]{1,40}\s*\|)"
"""Any field, including the vertical bar after it."""
