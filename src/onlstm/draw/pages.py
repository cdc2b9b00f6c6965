"""Web pages that need nothing but themselves: no network, no script; they print, and fit a phone."""

from collections.abc import Iterable

from onlstm.draw.item import Item, f1, xml
from onlstm.draw.picture import FONT, GREY, INK, MISSED, WRONG, document, number, panels

_STYLE = f"""
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 {FONT}; color: {INK}; background: #f8fafc; margin: 0 auto; padding: 1.5rem; max-width: 88rem; }}
h1 {{ font-size: 1.5rem; line-height: 1.2; margin: 0 0 1rem; }}
h2 {{ font-size: 1rem; font-weight: 600; margin: 0 0 .5rem; overflow-wrap: anywhere; }}
section {{ background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 1rem; margin: 0 0 1rem; }}
.pair {{ display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: flex-start; }}
.scroll {{ overflow-x: auto; }}
svg {{ display: block; height: auto; max-width: 100%; }} .scroll svg {{ width: 100%; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .15rem .7rem; text-align: left; }}
.grey {{ color: {GREY}; font-size: .9rem; }}
.key {{ display: inline-block; width: 2rem; vertical-align: middle; margin: 0 .4rem 0 1rem; border-top: 2px solid; }}
@media (max-width: 40rem) {{ body {{ padding: .6rem; }} section {{ padding: .6rem; }} }}
@media print {{
  body {{ background: none; padding: 0; max-width: none; zoom: .8; }}
  section {{ border: 0; padding: 0; }} section, .scroll {{ break-inside: avoid; }}
  .scroll {{ overflow: visible; }} svg {{ min-width: 0 !important; max-height: 24cm; }}
}}
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a whole HTML page of (heading, HTML) sections; the headings and the title are plain text."""
    parts = [
        f"<section>{f'<h2 dir=auto>{xml(heading)}</h2>' if heading else ''}{body}</section>\n"
        for heading, body in sections
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{xml(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1 dir=auto>{xml(title)}</h1>\n{''.join(parts)}</body></html>\n"
    )


def html(items: Iterable[Item], *, title: str = "Trees") -> str:
    """Return a page with a section for each sentence: its tree, the gold tree beside it, F1, distances and gates."""
    items = list(items)
    sections = [(f"{k}. {item.name}", sentence(item)) for k, item in enumerate(items, 1)]
    about = _about(items)
    return page(title, [("", about), *sections] if about else sections)


def sentence(item: Item) -> str:
    """Return the HTML of one sentence, for a section of a `page`: pictures side by side, or below each other."""
    shown = []
    for panel in panels(item):
        picture = document(panel.width, panel.height, f"{panel.name} {item.name}".strip(), panel.body)
        least, most = number(0.65 * panel.width), number(panel.width)  # smaller than that, it scrolls
        picture = picture.replace("<svg ", f'<svg style="min-width:{least}px" ', 1)
        style = f"flex:1 1 {least}px;max-width:min(100%,{most}px)"
        shown.append(f'<div class="scroll" tabindex="0" style="{style}">{picture}</div>')
    return f'<div class="pair">{"".join(shown)}</div>'


def _about(items: list[Item]) -> str:
    """Return the legend, of what occurs."""
    lines = []
    pairs = [(item.tree, item.gold) for item in items if item.gold]
    if pairs:
        mean = sum(f1(tree, gold) for tree, gold in pairs) / len(pairs)
        lines.append(
            f"The model's tree and the gold tree of {len(pairs)} sentence{'s' * (len(pairs) > 1)}; "
            f"mean F1 {mean:.1f} (rule on-lstm: unlabelled, without the whole sentence and single words)."
        )
    if any(item.gold and item.mark for item in items):
        lines.append(
            f'<span class="key" style="margin-left:0;border-color:{INK}"></span>in both trees'
            f'<span class="key" style="border-top-style:dashed;border-color:{WRONG}"></span>not in the gold tree'
            f'<span class="key" style="border-top-style:dashed;border-color:{MISSED}"></span>missed by the model'
        )
    if any(item.distances for item in items):
        lines.append("Distance: how high the boundary before a word is.")
    if any(item.gates for item in items):
        lines.append(
            "Master gate: a column a word, high-ranking neurons at the top (at the side of the words, where these run "
            "down); dark is 1."
        )
    return "".join(f'<p class="grey" style="margin:.2rem 0">{line}</p>' for line in lines)
