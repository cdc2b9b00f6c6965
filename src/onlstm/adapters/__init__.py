"""Doors to other libraries, each behind an extra of its own; only `onlstm.cli` imports them, and only when asked."""
