"""Diagrams of trees: SVG, web pages, LaTeX, and text for terminals; line charts besides. Pure Python strings, but
for `converter`, which makes images of SVG.

Nothing here imports another part of the package but its error: a tree is anything with the `words` and the preorder
`nodes` of an `onlstm.Tree`.

>>> from onlstm.trees import Tree
>>> tree = Tree.from_brackets("((the cat) sat)")
>>> svg(Diagram(tree=tree, distances=[0.9, 0.2, 0.6]))[:27]
'<svg xmlns="http://www.w3.o'
>>> print(*text(tree, width=40), sep="\\n")
┬─┬─ the
│ └─ cat
└─ sat
"""

from onlstm.draw.chart import Line, curve
from onlstm.draw.diagram import Diagram, f1
from onlstm.draw.html import html, page, sections
from onlstm.draw.image import converter
from onlstm.draw.latex import latex
from onlstm.draw.svg import svg
from onlstm.draw.terminal import text

__all__ = ["Diagram", "Line", "converter", "curve", "f1", "html", "latex", "page", "sections", "svg", "text"]
