"""One file a probe. A probe observes and says what it saw; it draws no conclusion."""
