"""Which agent sweeps which fabric, and which ports count errors."""
