// The picture of a sentence: a tree over its words, surprisals, distances and the master gates on the words' axis.
//
// As in draw/svg.py, a tree is laid out in two coordinates: `a` runs along the words, `d` from the root down to the
// words and past them. A matrix turns these into x and y: words across the picture or, where there is no room, down it
// with the root at the side; mirrored for scripts that run from right to left. Colours are attributes, so that a saved
// picture looks the same; on the page, style.css replaces them by those of the theme.

import { key } from "./tree.js";

export const FONT = "'Source Sans 3', 'Noto Sans', 'Helvetica Neue', Helvetica, Arial, system-ui, sans-serif";
export const INK = "#1e293b", GREY = "#64748b", WRONG = "#c2410c", MISSED = "#0369a1";
export const BAR = "#94a3b8", HEAT = "#2b5c94";
const WORD = 15, LABEL = 11, PAD = 12, SHADES = 16;
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/gv;

/** Return an element of SVG; attributes that are null are left out, and text is only ever text. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  element.append(...children.filter((child) => child));
  return element;
}

/** Return whether most letters of the words are of a script that runs from right to left. */
export function rightToLeft(words) {
  const letters = words.join("").match(/\p{L}/gv) ?? [];
  return 2 * (letters.join("").match(RIGHT_TO_LEFT) ?? []).length > letters.length;
}

/**
 * Return the root's value, computed from the words up: word(index), and node(node, values of its children). Nodes that
 * show nothing are left out: those without a label that have one child or one word.
 */
export function fold({ words, nodes }, word, node) {
  const shown = nodes.filter(({ start, end, label }, k) => {
    const child = nodes[k + 1];
    return label || !(end - start === 1 || (child && child.start === start && child.end === end));
  });
  const tops = []; // start and value of what has no parent yet, from right to left
  let first = words.length;
  for (const current of shown.reverse()) {
    while (first > current.start) tops.push([--first, word(first)]);
    const children = [];
    while (tops.length && tops.at(-1)[0] < current.end) children.push(tops.pop()[1]);
    tops.push([current.start, node(current, children)]);
  }
  return tops.length ? tops.at(-1)[1] : word(0);
}

export const levelsOf = (tree) => fold(tree, () => 0, (_, levels) => 1 + Math.max(...levels));

const width = (text, size) => {
  const context = (width.context ??= document.createElement("canvas").getContext("2d"));
  context.font = `${size}px ${FONT}`;
  return context.measureText(text).width;
};
const box = (a0, d0, a1, d1) => `M${round(a0)} ${round(d0)}H${round(a1)}V${round(d1)}H${round(a0)}z`;
const round = (x) => Math.round(10 * x) / 10;

export class Figure {
  /**
   * Draw a view. Only `tree` and `words` are needed; `tree` may be over the first words only, those read so far.
   *
   * @param view {tree, words, confidence, marked, colour, fresh, distances, surprisal, gates, erased, unknown, levels}
   * @param room the width that there is; a wider picture has its words down the page
   */
  constructor(view, room = Infinity) {
    Object.assign(this, { confidence: new Map(), marked: new Set(), fresh: new Set(), colour: INK }, view);
    this.read = this.tree ? this.tree.words.length : 0;
    this.rtl = rightToLeft(this.words);
    this.captions = this.indent || this.distances || this.gates || this.surprisal;
    this.narrow = room < 480;
    this.columns();
    this.down = PAD * 2 + 66 * Boolean(this.captions) + this.edges.at(-1) > Math.max(room, 250);
    if (this.down) this.rows();
    this.measure(room);
    this.element = this.draw();
  }

  /** Find the edges of the words' columns, and where in them the words stand; every label fits between its edges. */
  columns() {
    const left = this.words.map((word) => Math.max(28, width(word, WORD) + 12) / 2), right = [...left];
    const widen = (node, children) => {
      const whole = children.reduce((sum, [before, after]) => sum + before + after, 0);
      const before = (children[0][0] + whole - children.at(-1)[1]) / 2;
      const half = node.label ? (width(node.label, LABEL) + 10) / 2 : 0;
      const missing = [Math.max(0, half - before), Math.max(0, half - (whole - before))];
      left[node.start] += missing[0];
      right[node.end - 1] += missing[1];
      return [before + missing[0], whole - before + missing[1]];
    };
    if (this.read) fold(this.tree, (i) => [left[i], right[i]], widen);
    this.edges = [0];
    this.middles = this.words.map((_, i) => {
      this.edges.push(this.edges.at(-1) + left[i] + right[i]);
      return this.edges[i] + left[i];
    });
  }

  rows() {
    this.edges = Array.from({ length: this.words.length + 1 }, (_, k) => 22 * k);
    this.middles = this.words.map((_, i) => 22 * i + 11);
  }

  /** Find where along `d` each part begins. */
  measure(room) {
    const labels = Math.max(0, ...(this.tree?.nodes ?? []).map(({ label }) => (label ? width(label, LABEL) : 0)));
    const least = labels ? (this.down ? labels + 12 : 19) : 6;
    this.levels = Math.max(1, this.levels ?? 0, this.read ? levelsOf(this.tree) : 0);
    const wide = this.down ? Math.min(300, room * 0.3) : 420;
    this.depth = this.levels * Math.max(least, Math.min(this.down ? 18 : 30, wide / this.levels));
    this.step = this.depth / this.levels;
    const longest = Math.max(0, ...this.words.map((word) => width(word, WORD)));
    let d = this.depth + (this.down ? longest + 22 : 34);
    const part = (there, across, along) => {
      const start = d;
      if (there) d += this.down ? along : across;
      return start;
    };
    this.surprisalAt = part(this.surprisal, 46, this.narrow ? 47 : 66);
    this.distanceAt = part(this.distances, 62, this.narrow ? 68 : 84);
    const rows = this.gates?.[0]?.length ?? 0;
    const heat = Math.min(110, Math.max(56, 2.4 * rows));
    this.heatAt = part(this.gates, 6 + heat, 6 + (this.narrow ? 0.6 : 0.9) * heat);
    this.end = d;
    this.before = this.captions ? (this.down ? 18 : 66) : 0;
    const mirror = this.rtl ? -1 : 1, start = this.rtl ? (this.down ? this.end : this.edges.at(-1)) : 0;
    this.matrix = this.down ? [0, 1, mirror, 0, start, 0] : [mirror, 0, 0, 1, start, 0];
    this.width = 2 * PAD + (this.down ? this.end : this.before + this.edges.at(-1));
    this.height = 2 * PAD + (this.down ? this.before + this.edges.at(-1) : this.end);
    this.origin = [PAD + (this.rtl || this.down ? 0 : this.before), PAD + (this.down ? this.before : 0)];
  }

  draw() {
    this.layers = { under: svg("g"), over: svg("g", { fill: "none" }) };
    const short = this.down && this.narrow ? 0 : 20;
    const inside = [
      this.shapes({}, this.layers.under), this.drawTree(), this.drawWords(),
      this.surprisal && this.drawBars("surprisal", this.surprisal, this.surprisalAt, short, 1),
      this.distances && this.drawBars("distance", this.distances, this.distanceAt, 36, 2),
      this.gates && this.drawHeat(), this.shapes({}, this.layers.over),
    ].filter(Boolean);
    const size = { width: round(this.width), height: round(this.height) };
    return svg("svg", {
      ...size, viewBox: `0 0 ${size.width} ${size.height}`, fill: INK, class: "ink", "font-family": FONT,
    }, svg("g", { transform: `translate(${this.origin.map(round).join(" ")})` }, ...inside));
  }

  shapes(attributes, ...children) {
    return svg("g", { transform: `matrix(${this.matrix.join(" ")})`, ...attributes }, ...children);
  }

  text(a, d, text, attributes = {}) {
    const [xa, ya, xd, yd, x, y] = this.matrix;
    const place = { x: round(xa * a + xd * d + x), y: round(ya * a + yd * d + y) };
    return svg("text", { ...place, dy: ".35em", ...attributes }, text);
  }

  drawTree() {
    if (!this.read) return null;
    const lines = [], labels = [];
    this.brackets = new Map();
    fold(this.tree, (i) => [this.middles[i], this.depth], (node, children) => {
      const a = (children[0][0] + children.at(-1)[0]) / 2, d = Math.min(...children.map(([, d]) => d)) - this.step;
      const name = key(node.start, node.end), marked = this.marked.has(name), sure = this.confidence.get(name);
      const path = fork(d, children.map(([a, below]) => [a, below + 3 * (below === this.depth)]), this.step);
      const line = svg("path", {
        d: path, stroke: marked ? this.colour : INK, class: this.classes(name, marked),
        "stroke-width": marked ? 1.8 : sure === undefined ? 1.2 : round(0.5 + 1.7 * sure),
        "stroke-dasharray": marked ? "5 3" : null,
      });
      const hit = svg("path", { d: path, class: "hit", stroke: "none", "data-span": name });
      lines.push(line, hit);
      this.brackets.set(name, { line, node, a, d });
      if (node.label) {
        const heavy = marked ? { fill: this.colour, "font-weight": 700, class: this.classes(name, marked) } : {};
        labels.push(this.text(a, d, node.label, heavy));
      }
      return [a, d];
    });
    const halo = { stroke: "#fff", "stroke-width": 5, "stroke-linejoin": "round", "paint-order": "stroke" };
    return svg("g", {}, this.shapes({ fill: "none" }, ...lines), svg("g", {
      "font-size": LABEL, fill: GREY, "text-anchor": "middle", class: "labels", ...halo,
    }, ...labels));
  }

  classes(name, marked) {
    const colour = marked ? (this.colour === WRONG ? "only-here" : "only-there") : "";
    return `bracket ${colour} ${this.fresh.has(name) ? "fresh" : ""}`;
  }

  drawWords() {
    const d = this.depth + (this.down ? 9 : 14), side = this.down ? "start" : "middle";
    const words = this.words.map((word, i) => this.text(this.middles[i], d, word, {
      class: i < this.read ? (this.unknown?.[i] ? "unknown" : null) : "unread", "data-word": i,
      "fill-opacity": i < this.read ? null : 0.3, "font-style": this.unknown?.[i] ? "italic" : null,
    }));
    return svg("g", { "font-size": WORD, "text-anchor": side, direction: this.rtl ? "rtl" : null }, ...words);
  }

  /** Draw a bar and a number for each word that was read. */
  drawBars(caption, values, start, room, digits) {
    const read = values.slice(0, this.read), high = Math.max(1e-9, ...values);
    const scale = ((this.down ? 0.9 : -1) * room) / high, zero = this.down ? start : start + room + 4;
    const bars = read.map((value, i) => svg("path", {
      d: box(this.middles[i] - 5.5, zero, this.middles[i] + 5.5, zero + value * scale), class: `bar ${caption}`,
      "data-word": i, "fill-opacity": caption === "surprisal" ? 0.55 : null,
    }));
    const numbers = read.map((value, i) => {
      const d = this.down ? zero + value * scale + 5 : zero + 9;
      return this.text(this.middles[i], d, value.toFixed(digits));
    });
    const side = this.down ? (this.rtl ? "end" : "start") : "middle";
    if (caption === "distance") this.bars = bars;
    return svg("g", {},
      this.shapes({ fill: BAR }, svg("path", { d: box(0, zero, this.edges.at(-1), zero + 0.7), class: "bar" }),
        ...bars),
      svg("g", { "font-size": 9.5, fill: GREY, class: "soft", "text-anchor": side }, ...numbers),
      this.caption(caption, start, room / 2 + 3));
  }

  /** Draw the heat map, one path per shade, high-ranking neurons on top; `erased` is what the newest word forgets. */
  drawHeat() {
    const rows = this.gates[0]?.length ?? 0, bottom = this.end - 4, size = (bottom - this.heatAt) / Math.max(1, rows);
    this.heat = { rows, size, bottom };
    const draw = (columns, first, colour, name) => {
      const shades = Array(SHADES + 1).fill("");
      columns.forEach((column, k) => column.forEach((value, m) => {
        const [left, right] = this.edges.slice(first + k), top = bottom - (m + 1) * size;
        shades[Math.round(SHADES * Math.min(1, Math.max(0, value)))] += box(left + 1, top + size, right - 1, top);
      }));
      const opacity = (k) => (0.06 + (0.94 * k) / SHADES).toFixed(2);
      const paths = shades.map((d, k) => d && (name === "heat" || k) && svg("path", { d, "fill-opacity": opacity(k) }));
      return this.shapes({ fill: colour, class: name, "shape-rendering": "crispEdges" }, ...paths);
    };
    const parts = [draw(this.gates.slice(0, this.read), 0, HEAT, "heat")];
    if (this.erased && this.read) parts.push(draw([this.erased], this.read - 1, WRONG, "erased"));
    return svg("g", { class: "map" }, ...parts, this.caption(this.heatName, this.heatAt, (bottom - this.heatAt) / 2));
  }

  caption(text, d, middle) {
    const side = this.down !== this.rtl ? "start" : "end";
    const [a, at] = this.down ? [-12, d] : [-8, d + middle];
    return this.text(a, at, text, { "text-anchor": side, "font-size": 10.5, fill: GREY, class: "soft" });
  }

  /** Mark words [start, end), and the bars of some words; nothing if there is no span. */
  highlight(span, bars = [], row = null) {
    const { under, over } = this.layers;
    under.replaceChildren();
    over.replaceChildren();
    this.brackets?.forEach(({ line }, name) => line.classList.toggle("on", span !== null && name === key(...span)));
    this.bars?.forEach((bar, i) => bar.classList.toggle("on", bars.includes(i)));
    if (!span) return;
    const left = this.edges[span[0]] + 1, right = this.edges[span[1]] - 1;
    const far = this.down ? this.surprisalAt - 8 : this.depth + 26;
    under.append(svg("path", { class: "band", d: box(left, this.depth + 2, right, far) }));
    if (row !== null) {
      const low = this.heat.bottom - row * this.heat.size;
      over.append(svg("path", { class: "frame", d: box(left, low, right, low - this.heat.size) }));
    }
  }

  /** Return the word and the row of the heat map at a place on the screen, or null. */
  cellAt(clientX, clientY) {
    const bounds = this.element.getBoundingClientRect();
    const x = ((clientX - bounds.left) / bounds.width) * this.width - this.origin[0];
    const y = ((clientY - bounds.top) / bounds.height) * this.height - this.origin[1];
    const [xa, , xd, , e] = this.matrix;
    const [a, d] = this.down ? [y, (x - e) / xd] : [(x - e) / xa, y];
    const word = this.edges.findIndex((edge, k) => a >= edge && a < this.edges[k + 1]);
    const row = this.heat ? Math.floor((this.heat.bottom - d) / this.heat.size) : -1;
    const inside = row >= 0 && row < this.heat?.rows && d >= this.heatAt;
    return word < 0 || word >= this.read ? null : { word, row: inside ? row : null };
  }
}

/** Return the path from a node at `d` down to its children: round corners, straight lines between them. */
function fork(d, ends, step) {
  const [[a0, d0]] = ends, [a1, d1] = ends.at(-1), r = Math.min(6, 0.6 * step, (a1 - a0) / 2);
  const left = `M${round(a0)} ${round(d0)}V${round(d + r)}Q${round(a0)} ${round(d)} ${round(a0 + r)} ${round(d)}`;
  const right = `H${round(a1 - r)}Q${round(a1)} ${round(d)} ${round(a1)} ${round(d + r)}V${round(d1)}`;
  return left + right + ends.slice(1, -1).map(([a, below]) => `M${round(a)} ${round(d)}V${round(below)}`).join("");
}
