"""Commands that show what a collector or a file knows."""
