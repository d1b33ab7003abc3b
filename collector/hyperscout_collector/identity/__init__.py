"""Who is calling, and what they may do. Asked once a call; nothing else of the collector knows how."""
