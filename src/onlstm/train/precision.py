"""Training with products in bfloat16, refused in one line where the processor or the kernel cannot multiply in it."""

from torch import nn

from onlstm.errors import UserError
from onlstm.kernels.build import has_bfloat16


def round_products(model: nn.Module) -> None:
    """Let training round the factors of products to bfloat16, in all parts of a model that have a flag `narrow`.

    Nothing else changes: parameters, sums, gates and states are float32, and so is all evaluation.
    """
    if next(model.parameters()).device.type == "cpu" and not has_bfloat16():
        raise UserError(
            "train.precision bfloat16: needs a processor with avx512_bf16 and the C++ kernel; set it to float32"
        )
    for part in model.modules():
        if hasattr(part, "narrow"):
            part.narrow = True  # type: ignore[assignment]
