"""Web pages that need nothing but themselves: no network, no script; they print, and fit a phone."""

from collections.abc import Iterable, Iterator, Sequence

from onlstm.draw.diagram import Diagram, Drawable, f1, listed, right_to_left, xml
from onlstm.draw.svg import BAR, FONT, GREY, HEAT, INK, MISSED, WRONG, document, panels

_SHADOWS = (  # at the sides where there is more to scroll to; white covers, which scroll along, hide them elsewhere
    "background: linear-gradient(90deg, #fff 50%, #fff0) 0, linear-gradient(-90deg, #fff 50%, #fff0) 100%, "
    "linear-gradient(90deg, #47556980, #47556900) 0, linear-gradient(-90deg, #47556980, #47556900) 100%; "
    "background-size: 2.5rem 100%, 2.5rem 100%, .9rem 100%, .9rem 100%; background-repeat: no-repeat; "
    "background-attachment: local, local, scroll, scroll;"
)
_STYLE = f"""
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 {FONT}; color: {INK}; background: #f8fafc; margin: 0 auto; padding: 1.5rem; max-width: 88rem; }}
h1 {{ font-size: 1.5rem; line-height: 1.2; margin: 0 0 1rem; }}
h2 {{ font-size: 1rem; font-weight: 600; margin: 0 0 .5rem; overflow-wrap: anywhere; }} h2:empty {{ display: none; }}
section {{ background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 1rem; margin: 0 0 1rem; }}
.pair {{ display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: flex-start; }}
.rtl {{ direction: rtl; }}
.scroll {{ overflow-x: auto; scrollbar-width: thin; {_SHADOWS} }}
.scroll svg {{ width: 100%; direction: ltr; }} .scroll svg > rect {{ fill: none; }}
svg {{ display: block; height: auto; max-width: 100%; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .15rem .7rem; text-align: left; white-space: nowrap; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.half {{ flex: 1 1 20rem; overflow-x: auto; }} .half > * {{ width: 100%; }}
.grey {{ color: {GREY}; font-size: .9rem; margin: .2rem 0; }}
.swatch {{ display: inline-block; width: 1.8rem; margin: 0 .4rem 0 0; vertical-align: middle; }}
@media (max-width: 40rem) {{
  body, section {{ padding: .6rem; }} table {{ font-size: .85rem; }} td, th {{ padding: .15rem .3rem; }}
}}
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
        parts, side = [], " rtl" if right_to_left(diagram.tree.words) else ""
        for panel in panels(diagram):
            picture = document(panel.width, panel.height, f"{panel.name} {diagram.name}".strip(), panel.body())
            least = f"{0.65 * panel.width:.1f}"  # smaller than that, it scrolls
            picture = picture.replace("<svg ", f'<svg style="min-width:{least}px" ', 1)
            style = f"flex:{panel.width:.1f} 1 {least}px;max-width:min(100%,{panel.width:.1f}px)"  # all to one scale
            parts.append(f'<div class="scroll" tabindex="0" style="{style}">{picture}</div>')
        yield f"{diagram.number or k}. {diagram.name}", f'<div class="pair{side}">{"".join(parts)}</div>'


def _legend(diagrams: Sequence[Diagram]) -> Iterator[str]:
    """Yield what the marks that occur mean."""
    if scores := [f1(diagram.tree, diagram.gold) for diagram in diagrams if diagram.gold]:
        yield f"The model's tree, then the gold tree; mean F1 {sum(scores) / len(scores):.1f} (rule on-lstm)."
    if any(diagram.gold and diagram.mark for diagram in diagrams):
        ours, theirs = (_swatch(f"border-top:2px dashed {colour}") for colour in (WRONG, MISSED))
        yield f"{ours}bracket that only the model has<br>{theirs}bracket that only gold has"
    if any(diagram.weights() for diagram in diagrams):
        wedge = _swatch(f"height:4px;background:{INK};clip-path:polygon(0 40%,100% 0,100% 100%,0 60%)")
        yield f"{wedge}heavier lines: brackets that the model is surer of"
    if any(diagram.distances for diagram in diagrams):
        yield f"{_swatch(f'height:.8rem;background:{BAR}')}distance: how high the boundary before a word is"
    if any(diagram.gates for diagram in diagrams):
        shades = _swatch(f"height:.8rem;background:linear-gradient(90deg,{HEAT}0f,{HEAT})")
        yield f"{shades}master gate, 0 to 1: a column per word, high-ranking neurons on top (or next to the words)"


def _swatch(style: str) -> str:
    return f'<span class="swatch" style="{style}"></span>'
