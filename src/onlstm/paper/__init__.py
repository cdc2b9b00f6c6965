"""What the commands do: one module each, called by `onlstm.cli` and by scripts."""
