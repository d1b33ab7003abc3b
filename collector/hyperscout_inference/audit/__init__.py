"""What the wiring lacks or has against its own plan: suspicions about cables, ports and switches."""
