"""Small texts and helpers that readers share: errors, problems, host lists, JSON documents."""
