"""What a setting is where it comes as one text: from the environment, or from a flag."""


def split_commas(value: object) -> object:
    """ "a, b" as a list; for a `BeforeValidator`. What is no text is left to the setting's own type."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value
