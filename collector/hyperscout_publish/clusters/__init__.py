"""The part of a topology that one of several clusters gets, and the publisher that gives it to that
cluster."""
