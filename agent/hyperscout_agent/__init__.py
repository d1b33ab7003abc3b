"""The agent: probes, a store of their findings, and the stream that sends them to a collector."""
