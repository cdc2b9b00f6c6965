"""Reads tests/golden: numbers printed by the original code (see the README there)."""

import json
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).parent / "golden"


def golden_cases() -> list[dict]:
    """Every case of the golden index."""
    return json.loads((GOLDEN / "cell_index.json").read_text())["cases"]


def load_golden(name: str) -> dict[str, torch.Tensor]:
    with np.load(GOLDEN / name) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}
