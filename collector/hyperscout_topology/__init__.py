"""The topology as a value: its tables, names, differences and events, and its proto and JSON forms. Pure."""
