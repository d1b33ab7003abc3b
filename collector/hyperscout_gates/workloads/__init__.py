"""What pods and their owners define about a gang: size, resources, constraints. Performs no I/O."""
