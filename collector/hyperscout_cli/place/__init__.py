"""Commands that place gangs."""
