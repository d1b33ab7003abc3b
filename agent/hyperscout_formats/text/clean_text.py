"""Makes text from outside safe: names and messages of devices, agents, tools and other systems.

Such a text reaches logs, terminals, Kubernetes objects, metrics and pages. Control characters (ESC, BEL, line
breaks), characters that change the direction of writing, and halves of surrogate pairs become blanks. Each
text passes through here where it enters, so what shows it need not check it.
"""


def cleaned(text: str) -> str:
    """Return the text with each character that cannot be printed (`str.isprintable`) as a blank."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
