"""The calls that users make first, and the demo."""
