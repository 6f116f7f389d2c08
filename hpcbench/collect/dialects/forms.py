"""The layouts that several frameworks share: fields between bars, and the grammar of a whole line of them."""

BAR = r"\|\s*{name}:\s*{value}\s*(?=\||$)"
"""A field between bars: ``| key: value |``."""
BARS = r"(?:\s*[^|:\s][^|:]{0,60}:\s*[^|\s]{1,40}\s*\|)"
"""One such field, whatever it is, with the bar that closes it."""
