"""Records what changed between generations, when and why, and answers queries about it."""
