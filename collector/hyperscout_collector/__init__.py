"""The collector: it takes findings in, decides what is published, keeps the history, and serves clients."""
