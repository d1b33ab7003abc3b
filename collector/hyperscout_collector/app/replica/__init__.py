"""The process: alone, or one of several replicas of which one leads."""
