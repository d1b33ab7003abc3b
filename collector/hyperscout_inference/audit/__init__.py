"""Compare the wiring with its own regularities: suspicions about cables, ports and switches."""
