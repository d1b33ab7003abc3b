"""Publisher interface, and the runner that passes the newest topology to each publisher."""
