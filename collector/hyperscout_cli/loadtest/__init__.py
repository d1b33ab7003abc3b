"""The load test: simulated agents in several processes, a watcher, and the figures of both."""
