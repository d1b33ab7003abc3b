"""Derive tiers from the labels with which a cloud gives the place of its machines."""
