"""Parts that every long-running process needs, such as back-off, rate limits and bounded threads."""
