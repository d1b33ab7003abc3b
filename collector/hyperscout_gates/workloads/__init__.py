"""What pods and their owners say of a gang: its size, its resources, its constraints. Pure."""
