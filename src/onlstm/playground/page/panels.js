// The pictures on the page, side by side or one below the other; what the pointer and the arrow keys find in them.

import { Figure, MISSED, WRONG } from "./figure.js";
import { key, reasons, spanKeys } from "./tree.js";
import { keptSpan } from "./view.js";

const GAP = 32; // between two pictures
const SMALLEST = 0.72, LARGEST = 1.35; // how far a picture is scaled to fit the room; beyond that, it scrolls

const quoted = (words, [start, end]) => `“${words.slice(start, end).join(" ")}”`;

/** Return an element of HTML; text is only ever text. */
export function html(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** Mark, in two views of the same words, the brackets that only one of them has. */
export function markDifferences(first, second) {
  if (!first?.tree || !second?.tree || first.tree.words.join(" ") !== second.tree.words.join(" ")) return false;
  const ours = spanKeys(first.tree), theirs = spanKeys(second.tree);
  Object.assign(first, { marked: new Set([...ours].filter((span) => !theirs.has(span))), colour: WRONG });
  Object.assign(second, { marked: new Set([...theirs].filter((span) => !ours.has(span))), colour: MISSED });
  return true;
}

/** Return figures of the views that fit the room: side by side if they do, else below each other. */
export function figuresOf(views, room) {
  const wide = views.map((view) => new Figure(view));
  const together = wide.reduce((sum, figure) => sum + figure.width, GAP * (wide.length - 1));
  const indent = Boolean(wide[0].captions); // so that, below each other, their words stand in columns
  if (together > room) return views.map((view) => new Figure({ ...view, indent }, room));
  const levels = Math.max(...wide.map((figure) => figure.levels)); // so that their words stand on one line
  return wide.map((figure, k) => (figure.levels === levels ? figure : new Figure({ ...views[k], levels })));
}

export class Panels {
  /** `say` is called with a sentence about what the pointer is at, or with "". */
  constructor(element, say) {
    Object.assign(this, { element, say, panels: [] });
    for (const name of ["pointermove", "pointerdown"]) element.addEventListener(name, (event) => this.point(event));
    element.addEventListener("pointerleave", () => this.clear());
    element.addEventListener("keydown", (event) => this.press(event));
  }

  /** Show views with their captions; a caption is a list of nodes. */
  show(views, captions) {
    const focused = this.panels.findIndex(({ scroll }) => scroll === document.activeElement);
    const room = this.element.clientWidth, figures = figuresOf(views, room);
    const together = figures.reduce((sum, figure) => sum + figure.width, GAP * (figures.length - 1));
    const widest = Math.max(...figures.map((figure) => figure.width));
    const scale = Math.min(LARGEST, Math.max(SMALLEST, room / (together <= room ? together : widest)));
    this.panels = figures.map((figure, k) => {
      figure.element.style.width = `${scale * figure.width}px`;
      figure.element.setAttribute("aria-hidden", "true"); // the nested list says the same
      const scroll = html("div", { className: "scroll", tabIndex: 0 }, figure.element);
      scroll.setAttribute("role", "group");
      scroll.setAttribute("aria-label", "Tree: the arrow keys go through its brackets");
      const panel = html("figure", { className: "panel" }, html("figcaption", {}, ...captions[k]), scroll);
      return { view: views[k], figure, scroll, panel, at: -1 };
    });
    this.element.replaceChildren(...this.panels.map(({ panel }) => panel));
    if (focused >= 0) this.panels[focused]?.scroll.focus();
  }

  clear() {
    for (const { figure } of this.panels) figure.highlight(null);
    this.say("");
  }

  point(event) {
    const hovered = this.panels.find(({ scroll }) => scroll.contains(event.target));
    this.panels.forEach((panel) => panel !== hovered && panel.figure.highlight(null));
    if (!hovered) return this.say("");
    const { figure, view } = hovered, bracket = event.target.closest?.("[data-span]");
    if (bracket) return this.explain(hovered, bracket.dataset.span.split(",").map(Number));
    const cell = figure.cellAt(event.clientX, event.clientY);
    if (cell && cell.row !== null) return this.explainRow(hovered, cell);
    figure.highlight(cell ? [cell.word, cell.word + 1] : null, cell ? [cell.word] : []);
    return this.say(cell ? wordText(view, cell.word) : "");
  }

  /** The arrow keys go through the brackets; Escape leaves them. */
  press(event) {
    const panel = this.panels.find(({ scroll }) => scroll === event.target);
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (!panel?.figure.brackets || !(event.key in moves || event.key === "Escape")) return;
    event.preventDefault();
    const nodes = panel.view.tree.nodes.filter(({ start, end }) => end - start > 1);
    if (event.key === "Escape") {
      panel.at = -1;
      return this.clear();
    }
    panel.at = Math.max(0, Math.min(nodes.length - 1, panel.at + moves[event.key]));
    if (nodes[panel.at]) this.explain(panel, [nodes[panel.at].start, nodes[panel.at].end]);
  }

  /** Say what made a bracket. */
  explain({ figure, view }, span) {
    const name = key(...span), words = view.words, whole = span[1] - span[0] === view.tree.words.length;
    const about = [quoted(words, span)];
    let bars = [];
    if (whole) about.push("the whole sentence");
    else if (view.probability) {
      about.push(`${view.symbols.get(name)}, probability ${view.probability.get(name).toFixed(3)}`);
    } else if (view.distances) {
      const { around, largest, margin } = reasons(view.distances.slice(0, view.read), span, view.decoder);
      bars = largest >= 0 ? [...around, largest] : around;
      const at = (k) => `${view.distances[k].toFixed(3)} at “${words[k]}”`;
      const inside = largest >= 0 ? `; the largest distance inside is ${at(largest)}: margin ${margin.toFixed(3)}` : "";
      about.push(`its boundaries are ${around.map(at).join(" and ")}${inside}`);
    } else if (view.confidence.has(name)) {
      const all = view.layers.length, votes = Math.round(view.confidence.get(name) * all);
      about.push(`in the trees of ${votes} of ${all} layers`);
    }
    figure.highlight(span, bars);
    this.say(about.join(": "));
  }

  explainRow({ figure, view }, { word, row }) {
    const span = keptSpan(view.forget, word, row, view.read), value = view.gates[word][row];
    figure.highlight(span, [], row);
    const place = `Neurons ${row + 1} of ${view.gates[word].length}, from the lowest rank`;
    this.say(`${place}: ${value.toFixed(2)} at “${view.words[word]}”; they hold ${quoted(view.words, span)}`);
  }
}

function wordText(view, i) {
  const parts = [`“${view.words[i]}”${view.unknown?.[i] ? " (unknown to the model)" : ""}`];
  if (view.surprisal) parts.push(`surprisal ${view.surprisal[i].toFixed(2)} nats`);
  if (view.distances) parts.push(`distance ${view.distances[i].toFixed(3)}`);
  return parts.join(": ").replace(/: distance/, ", distance");
}
