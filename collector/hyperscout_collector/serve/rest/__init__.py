"""REST over the published picture: routes, pages, streams, problems. It only reads."""
