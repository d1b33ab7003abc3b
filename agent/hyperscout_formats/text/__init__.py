"""Small text formats and helpers that readers share: errors, problems, host lists, JSON documents."""
