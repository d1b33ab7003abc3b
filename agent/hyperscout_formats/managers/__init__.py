"""What UFM, NMX and NetQ answer."""
