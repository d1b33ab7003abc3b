"""Keeps the reservations of gangs and the resources that are free beside them."""
