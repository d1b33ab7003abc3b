"""Reads where the accelerators of this host are, and the files of AMD GPUs."""
