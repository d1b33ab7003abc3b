"""The controller that watches pods, asks the placer, and writes patches."""
