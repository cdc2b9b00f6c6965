"""Trees for LaTeX, with the package `forest`: a document that compiles, whatever the words are."""

import unicodedata
from typing import TYPE_CHECKING

from onlstm.draw.diagram import Drawable, Spans, fold, listed, right_to_left, visible

if TYPE_CHECKING:
    from onlstm.trees.tree import Node, Tree

_ESCAPES = {
    **{char: "\\" + char for char in "#$%&_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': r"\textquotedbl{}"},
    **{char: char + "{}" for char in "-`'<>,?!"},  # two of them would become one
}
_PDFLATEX = {*map(chr, [*range(0x80), *range(0xA1, 0x180)])} - set("\xadĦħĸĿŀŉŦŧſ") | set("‘’“”–—…€†‡•™")
_SHAPED = ("Arabic", "Bengali", "Devanagari", "Gujarati", "Gurmukhi", "Kannada", "Malayalam", "Tamil", "Telugu", "Thai")
_PREAMBLE = r"""\documentclass[border=6pt]{standalone}
\usepackage{iftex,forest}
\forestset{
  words below/.style={
    for tree={inner sep=2pt, fit=band, s sep=7pt, l=0pt, l sep=%s, parent anchor=south, child anchor=north},
    for tree={edge={rounded corners=2pt}},
    for tree={edge path={\noexpand\path[\forestoption{edge}] (!u.parent anchor) -| (.child anchor);}},
    where n children=0{tier=word}{},
    delay={where content={}{shape=coordinate}{}},
  },
  only here/.style={for children={edge+={densely dashed, draw=red!75!black}}},
  missed/.style={for children={edge+={densely dashed, draw=blue!75!black}}},
}
"""
_LATIN = "\\usepackage[T1]{fontenc}\n\\usepackage{lmodern}\n"
_UNICODE = r"""\ifLuaTeX\else
  \errmessage{This document has characters that pdflatex lacks: compile it with lualatex}
\fi
\usepackage{fontspec}
%% Any font that has the characters of these sentences:
\IfFontExistsTF{%s}{\setmainfont{%s}[Renderer=HarfBuzz, %s]}{}
\newcommand\leftwards[1]{{\textdir TRT #1}}
"""


def latex(diagrams: Drawable) -> str:
    """Return a LaTeX document with a tree, or with several; gold trees stand at the right.

    Latin text compiles with pdflatex, all other with lualatex, as the first line says. Brackets that only one of two
    trees has are dashed.

    >>> from onlstm.trees import Tree
    >>> print(latex(Tree.from_brackets("(NP 10 %)")).splitlines()[-3].strip())
    \\begin{forest} words below [{NP} [{10}] [{\\%}]]\\end{forest}
    """
    rows, depth = [], 1
    for diagram in listed(diagrams):
        wrong, missed = diagram.differing()
        row = [_forest(diagram.tree, wrong, "only here")]
        row += [_forest(diagram.gold, missed, "missed")] if diagram.gold else []
        rows.append("  " + " &\n  ".join(forest for forest, _ in row))
        depth = max(depth, *(depth for _, depth in row))
    body = " \\\\[3ex]\n".join(rows)
    engine, fonts = "pdflatex", _LATIN
    if not set(body) <= _PDFLATEX:
        wide = any(unicodedata.east_asian_width(char) in "WF" for char in body)
        font = "Noto Serif CJK SC" if wide else "FreeSerif"
        scripts = {unicodedata.name(char, "-").split()[0].title() for char in body}
        shaping = ", ".join(f"Script={script}" for script in _SHAPED if script in scripts)
        engine, fonts = "lualatex", _UNICODE % (font, font, shaping)
    head = f"% Compile with {engine}.\n" + _PREAMBLE % f"{max(3, min(12, 240 // depth))}pt" + fonts
    return f"{head}\\begin{{document}}\n\\begin{{tabular}}{{cc}}\n{body}\n\\end{{tabular}}\n\\end{{document}}\n"


def _forest(tree: "Tree", marked: Spans, style: str) -> tuple[str, int]:
    """Return the tree in forest's brackets, mirrored where its script is, and its depth."""
    mirrored = right_to_left(tree.words)

    def word(i: int) -> tuple[str, int]:
        return f"[{{{_tex(tree.words[i])}}}]", 0

    def node(node: "Node", children: list[tuple[str, int]]) -> tuple[str, int]:
        marks = f", {style}" if node[:2] in marked else ""
        inside = " ".join(part for part, _ in (children[::-1] if mirrored else children))
        return f"[{{{_tex(node.label or '')}}}{marks} {inside}]", 1 + max(depth for _, depth in children)

    brackets, depth = fold(tree, word, node)
    return f"\\begin{{forest}} words below {brackets}\\end{{forest}}", depth


def _tex(text: str) -> str:
    """Return the text escaped."""
    text = unicodedata.normalize("NFC", visible(text))
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return f"\\leftwards{{{escaped}}}" if right_to_left([text]) else escaped
