"""Web pages that need nothing but themselves: no network, no script; they print, and fit a phone."""

from collections.abc import Iterable, Iterator, Sequence

from onlstm.draw.diagram import Diagram, Drawable, f1, listed, xml
from onlstm.draw.svg import FONT, GREY, INK, document, panels

_STYLE = f"""
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 {FONT}; color: {INK}; background: #f8fafc; margin: 0 auto; padding: 1.5rem; max-width: 88rem; }}
h1 {{ font-size: 1.5rem; line-height: 1.2; margin: 0 0 1rem; }}
h2 {{ font-size: 1rem; font-weight: 600; margin: 0 0 .5rem; overflow-wrap: anywhere; }} h2:empty {{ display: none; }}
section {{ background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 1rem; margin: 0 0 1rem; }}
.pair {{ display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: flex-start; }}
.scroll {{ overflow-x: auto; }} .scroll svg {{ width: 100%; }}
svg {{ display: block; height: auto; max-width: 100%; }} .pair > svg {{ flex: 1 1 28rem; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .15rem .7rem; text-align: left; }}
.grey {{ color: {GREY}; font-size: .9rem; margin: .2rem 0; }}
@media (max-width: 40rem) {{ body, section {{ padding: .6rem; }} }}
@media print {{
  body {{ background: none; padding: 0; max-width: none; zoom: .8; }}
  section {{ border: 0; padding: 0; }} section, .scroll {{ break-inside: avoid; }}
  .scroll {{ overflow: visible; }} svg {{ min-width: 0 !important; max-height: 24cm; }}
}}
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a whole HTML page of (heading, HTML) sections; the headings and the title are plain text."""
    body = "".join(f"<section><h2 dir=auto>{xml(heading)}</h2>{content}</section>\n" for heading, content in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{xml(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1 dir=auto>{xml(title)}</h1>\n{body}</body></html>\n"
    )


def html(diagrams: Drawable, *, title: str = "Trees") -> str:
    """Return a page with a section for each sentence: its tree, the gold tree beside it, F1, distances and gates."""
    return page(title, sections(listed(diagrams)))


def sections(diagrams: Sequence[Diagram]) -> Iterator[tuple[str, str]]:
    """Yield sections for a `page`: a legend, then the trees of each sentence, side by side or below each other."""
    if legend := "".join(f'<p class="grey">{line}</p>' for line in _legend(diagrams)):
        yield "", legend
    for k, diagram in enumerate(diagrams, 1):
        parts = []
        for panel in panels(diagram):
            picture = document(panel.width, panel.height, f"{panel.name} {diagram.name}".strip(), panel.body())
            least = f"{0.65 * panel.width:.1f}"  # smaller than that, it scrolls
            picture = picture.replace("<svg ", f'<svg style="min-width:{least}px" ', 1)
            style = f"flex:1 1 {least}px;max-width:min(100%,{panel.width:.1f}px)"
            parts.append(f'<div class="scroll" tabindex="0" style="{style}">{picture}</div>')
        yield f"{k}. {diagram.name}", f'<div class="pair">{"".join(parts)}</div>'


def _legend(diagrams: Sequence[Diagram]) -> Iterator[str]:
    """Yield what the marks that occur mean."""
    if scores := [f1(diagram.tree, diagram.gold) for diagram in diagrams if diagram.gold]:
        yield f"Model at the left, gold at the right; mean F1 {sum(scores) / len(scores):.1f} (rule on-lstm)."
    if any(diagram.gold and diagram.mark for diagram in diagrams):
        yield "Dashed: brackets that only one of the two trees has."
    if any(diagram.weights() for diagram in diagrams):
        yield "Heavier lines: brackets that the model is surer of."
    if any(diagram.distances for diagram in diagrams):
        yield "Distance: how high the boundary before a word is."
    if any(diagram.gates for diagram in diagrams):
        yield "Master gate: a column per word, high-ranking neurons on top (or next to the words); dark is 1."
