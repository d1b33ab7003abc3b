"""Parts that every long-running process needs: bounded threads, watched tasks, addresses, errors as text."""
