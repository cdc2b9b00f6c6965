"""Adapters for other libraries, each behind an extra of its own."""
