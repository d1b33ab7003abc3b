"""Authentication and authorization of callers. No other package of the collector checks credentials."""
