"""The same function as `onlstm.cell.scan`, faster: `ops` (operators), `reference` (PyTorch), `cpu.cpp`, `triton`."""
