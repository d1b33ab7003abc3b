"""What changed, when, and why: events told from two generations, and the file that keeps them."""
