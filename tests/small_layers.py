"""Small layers and inputs in float64, for the tests of the layer."""

import pytest
import torch

from onlstm import ONLSTM

both = pytest.mark.parametrize("backend", ["eager", "fused"])


def layer(backend="auto", **options):
    return ONLSTM(5, 12, **{"chunk_size": 3, "dtype": torch.float64, "backend": backend} | options)


def words(*shape):
    return torch.randn(*shape, dtype=torch.float64)
