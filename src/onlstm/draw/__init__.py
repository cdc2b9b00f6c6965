"""Pictures of trees: SVG, web pages, LaTeX, and text for terminals; line charts besides. Pure Python strings.

Whoever has a tree may draw: nothing here imports another part of the package but its error. Trees are anything with
the `words` and preorder `nodes` of an `onlstm.Tree`.

>>> from onlstm.trees import Tree
>>> tree = Tree.from_brackets("((the cat) sat)")
>>> svg(tree, distances=[0.9, 0.2, 0.6])[:27]
'<svg xmlns="http://www.w3.o'
>>> print(*text(tree, width=40), sep="\\n")
┬─┬─ the
│ └─ cat
└─ sat
"""

from onlstm.draw.chart import curve
from onlstm.draw.forest import latex
from onlstm.draw.item import Item, f1
from onlstm.draw.pages import html, page
from onlstm.draw.picture import figure, svg
from onlstm.draw.terminal import text

__all__ = ["Item", "curve", "f1", "figure", "html", "latex", "page", "svg", "text"]
