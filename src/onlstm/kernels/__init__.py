"""The same function as `onlstm.cell.scan`, faster: `ops` (operators), `reference` (plain PyTorch), `cpu.cpp`."""
