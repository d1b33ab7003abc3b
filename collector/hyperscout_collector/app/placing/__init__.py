"""The placer in a running collector: its book, its free resources and its watchers."""
