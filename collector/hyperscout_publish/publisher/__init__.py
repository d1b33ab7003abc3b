"""What a publisher is, and the runner that gives each the newest topology at its own pace."""
