"""Trees for LaTeX, with the package `forest`: a document that compiles, whatever the words are."""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from onlstm.draw.item import Item, drawn_nodes, parents, right_to_left, visible

if TYPE_CHECKING:
    from onlstm.trees.tree import Tree

_ESCAPES = {
    **{char: "\\" + char for char in "#$%&_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': r"\textquotedbl{}"},
    **{char: char + "{}" for char in "-`'<>,?!"},  # two of them would become one
}
_PDFTEX = {*map(chr, range(0xA1, 0x180))} - set("\xadĦħĸĿŀŉŦŧſ") | set("‘’“”–—…€†‡•™")
_CJK = ("Noto Serif CJK SC", "Noto Sans CJK SC", "Source Han Serif SC", "FandolSong", "Songti SC", "SimSun")
_FONTS = {
    "Cjk": _CJK,
    "Hiragana": ("Noto Serif CJK JP", *_CJK[:2], "IPAexMincho", "Hiragino Mincho ProN", "MS Mincho"),
    "Hangul": ("Noto Serif CJK KR", *_CJK[:2], "UnBatang", "AppleMyungjo", "Batang"),
    "Arabic": ("Noto Naskh Arabic", "Amiri"),
    "Emoji": ("Noto Emoji", "Symbola", "Segoe UI Emoji", "Noto Sans Symbols2"),
    "Symbol": ("DejaVu Sans", "STIX Two Math", "Noto Sans Math", "Noto Sans Symbols"),
}
_ANY = ("Noto Serif", "FreeSerif", "DejaVu Sans", "Times New Roman", "Arial Unicode MS")
_SHAPED = (
    *("Arabic", "Hebrew", "Syriac", "Thaana", "Devanagari", "Bengali", "Gujarati", "Gurmukhi", "Kannada", "Malayalam"),
    *("Oriya", "Sinhala", "Tamil", "Telugu", "Khmer", "Lao", "Mongolian", "Myanmar", "Thai", "Tibetan"),
)
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
_UNICODE = r"""\ifPDFTeX
  \errmessage{This document has characters that pdflatex lacks: compile it with lualatex or xelatex}
\fi
\usepackage{fontspec}
\ifXeTeX \TeXXeTstate=1 \fi
\newcommand\leftwards[1]{\ifXeTeX\beginR#1\endR\else{\textdir TRT #1}\fi}
\newcommand\tryfont[3]{\ifdefined#1\else\IfFontExistsTF{#2}{\newfontfamily#1{#2}[#3]}{}\fi}
\newcommand\trycolour[2]{\ifLuaTeX\IfFontExistsTF{#2}{\newfontfamily#1{#2}[Renderer=HarfBuzz]}{}\fi}
"""


def latex(items: "Tree | Item | Iterable[Tree | Item]") -> str:
    """Return a LaTeX document with a tree, or with several; gold trees stand at the right.

    Latin text compiles with pdflatex, all other with lualatex or xelatex, which the first line says; each script takes
    the first of some common fonts that is installed. Brackets that only one of two trees has are dashed.

    >>> from onlstm.trees import Tree
    >>> print(latex(Tree.from_brackets("(NP 10 %)")).splitlines()[-3].strip())
    \\begin{forest} words below [{NP} [{10}] [{\\%}]]\\end{forest}
    """
    several: Any = items if isinstance(items, Iterable) else [items]
    shown = [each if isinstance(each, Item) else Item(tree=each) for each in several]
    scripts: set[str] = set()
    rows, depth = [], 0
    for item in shown:
        wrong, missed = item.differing()
        row = [_forest(item.tree, wrong, "only here", scripts)]
        if item.gold:
            row.append(_forest(item.gold, missed, "missed", scripts))
        rows.append("  " + " &\n  ".join(row))
        depth = max(depth, _depth(item.tree), _depth(item.gold) if item.gold else 0)
    engine, fonts = "pdflatex", "\\usepackage[T1]{fontenc}\n\\usepackage{lmodern}\n"
    if scripts:
        engine = "lualatex, or with xelatex (no coloured emoji)"
        fonts = _UNICODE + "".join(map(_fonts, sorted(scripts)))
    head = f"% Compile with {engine}.\n" + _PREAMBLE % f"{max(3, min(12, 240 // max(1, depth)))}pt" + fonts
    body = " \\\\[3ex]\n".join(rows)
    return f"{head}\\begin{{document}}\n\\begin{{tabular}}{{cc}}\n{body}\n\\end{{tabular}}\n\\end{{document}}\n"


def _forest(tree: "Tree", off: set[tuple[int, int]], style: str, scripts: set[str]) -> str:
    """Return the tree in forest's brackets, mirrored where its script is; note the scripts that need a font."""
    nodes, n = drawn_nodes(tree), len(tree.words)
    opens: list[list[str]] = [[] for _ in range(n)]
    closes = [0] * n
    mirrored = right_to_left(tree.words)
    for start, end, label in nodes:
        first, last = (end - 1, start) if mirrored else (start, end - 1)
        opens[first].append(f"[{{{_tex(label or '', scripts)}}}{f', {style}' if (start, end) in off else ''} ")
        closes[last] += 1
    found = []
    for i in reversed(range(n)) if mirrored else range(n):
        found.append("".join(opens[i]) + f"[{{{_tex(tree.words[i], scripts)}}}]" + "]" * closes[i])
    return "\\begin{forest} words below " + " ".join(found) + "\\end{forest}"


def _tex(text: str, scripts: set[str]) -> str:
    """Return the text escaped, each run of a script that plain fonts lack in its own font."""
    text, found = unicodedata.normalize("NFC", visible(text)), []
    for script, run in groupby(zip(_scripts(text), text, strict=True), key=lambda pair: pair[0]):
        part = "".join(_ESCAPES.get(char, char) for _, char in run)
        if script:
            scripts.add(script)
            if any(unicodedata.bidirectional(char) in ("R", "AL") for char in part):
                part = f"\\leftwards{{{part}}}"
            part = f"{{\\font{script} {part}}}"
        found.append(part)
    return "".join(found)


def _scripts(text: str) -> Iterator[str]:
    """Yield the script of each character as in its Unicode name; "" for what pdflatex has; marks go with their base."""
    script = ""
    for char in text:
        category = unicodedata.category(char)
        if char.isascii() or char in _PDFTEX:
            script = ""
        elif category[0] in "LN":
            name = unicodedata.name(char, "SYMBOL").split()[0].split("-")[0].title()
            script = "Hiragana" if name == "Katakana" else name if name.isalpha() else "Symbol"
        elif category[0] in "SP":
            script = "Emoji" if (category == "So" and char >= "\u2600") or char >= "\U0001f000" else "Symbol"
        else:
            script = script or "Symbol"
        yield script


def _fonts(script: str) -> str:
    """Return the TeX that finds a font for a script."""
    fonts = (*_FONTS.get(script, (f"Noto Serif {script}", f"Noto Sans {script}")), *_ANY)
    colour = f"\\trycolour\\font{script}{{Noto Color Emoji}}\n" if script == "Emoji" else ""
    shaping = f"Script={script}" if script in _SHAPED else ""
    tries = "".join(f"\\tryfont\\font{script}{{{font}}}{{{shaping}}}" for font in fonts)
    return f"{colour}{tries}\\ifdefined\\font{script}\\else\\let\\font{script}\\relax\\fi\n"


def _depth(tree: "Tree") -> int:
    """Return the most nodes around a word."""
    depths = [0]  # outside, then at each node
    for parent in parents(drawn_nodes(tree), len(tree.words))[0]:
        depths.append(depths[parent + 1] + 1)
    return max(depths)
