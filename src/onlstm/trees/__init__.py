"""Constituency trees: the `Tree` itself and the decoders that make one from distances or from other trees.

Pure Python: nothing here imports torch or numpy, so commands that only read or draw trees start at once.
"""

from onlstm.trees.average import vote
from onlstm.trees.decode import Decoder, tree_from_distances
from onlstm.trees.tree import Node, Tree, TreebankError, read_brackets

__all__ = ["Decoder", "Node", "Tree", "TreebankError", "read_brackets", "tree_from_distances", "vote"]
