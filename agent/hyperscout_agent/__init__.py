"""The agent: probes that observe, a store of what they found, and the stream that carries it up."""
