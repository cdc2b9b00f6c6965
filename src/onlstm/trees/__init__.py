"""Constituency trees: the `Tree` itself and the decoders that make one from distances or from other trees.

Pure Python, so that commands that only read or draw trees start at once; only `vote`, imported on first use, needs
numpy.
"""

from typing import TYPE_CHECKING, Any

from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.tree import Node, Tree, TreebankError, read_brackets

if TYPE_CHECKING:
    from onlstm.trees.average import vote

__all__ = ["Decoder", "Node", "Tree", "TreebankError", "read_brackets", "tree_from_distances", "vote"]


def __getattr__(name: str) -> Any:
    if name == "vote":
        from onlstm.trees.average import vote

        return vote
    raise AttributeError(f"module 'onlstm.trees' has no attribute {name!r}")
