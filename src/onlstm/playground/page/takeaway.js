// What a person can take away: the picture as SVG or PNG, the tree for LaTeX, as brackets or as JSON.

import { fold, rightToLeft } from "./figure.js";
import { brackets, key, spans } from "./tree.js";

/** Return a picture as a document of its own, on a white ground, without what is only for the pointer. */
export function svgText(element, title) {
  const copy = element.cloneNode(true);
  for (const part of copy.querySelectorAll(".hit, .band, .frame")) part.remove();
  for (const part of [copy, ...copy.querySelectorAll("*")]) {
    for (const name of ["class", "data-word", "data-span", "aria-hidden"]) part.removeAttribute(name);
  }
  const make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const ground = make("rect"), heading = make("title");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", rx: 6, fill: "#fff" })) {
    ground.setAttribute(name, value);
  }
  heading.textContent = visible(title);
  copy.prepend(heading, ground);
  copy.setAttribute("role", "img");
  return visible(new XMLSerializer().serializeToString(copy));
}

/** Return the picture as a PNG, two pixels for one. */
export async function png(text, width, height) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image(), canvas = document.createElement("canvas");
    image.src = url;
    await image.decode();
    Object.assign(canvas, { width: Math.ceil(2 * width), height: Math.ceil(2 * height) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Return a line of JSON, as of `onlstm parse --format json`. */
export function json(view, result) {
  const { tree } = view, inner = tree ? spans(tree) : [];
  const layer = view.layers ? (view.layers.length > 1 ? view.layers : view.layers[0]) : null;
  const record = {
    id: 0,
    text: result.text,
    words: result.tokens.map((token) => token.text),
    offsets: result.tokens.map(({ start, end }) => [start, end]),
    distances: view.distances,
    spans: inner,
    layer,
    decoder: view.decoder,
  };
  const values = (map) => inner.map(([start, end]) => map.get(key(start, end)));
  if (view.symbols) Object.assign(record, { labels: values(view.symbols), confidence: values(view.probability) });
  if (view.voting) record.confidence = values(view.confidence);
  return JSON.stringify(record);
}

export const bracketText = (view) => (view.tree ? brackets(view.tree) : "");

const ESCAPES = {
  ...Object.fromEntries([..."#$%&_{}"].map((char) => [char, `\\${char}`])),
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", '"': "\\textquotedbl{}",
  ...Object.fromEntries([..."-`'<>,?!"].map((char) => [char, `${char}{}`])), // two of them would become one
};
const NO_PDFLATEX = /[^\x00-\x7f\xa1-\u017f‘’“”–—…€†‡•™]|[\xad\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167\u017f]/;
const WIDE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff01-\uff60]/v;
const SHAPED = "Arabic Bengali Devanagari Gujarati Gurmukhi Kannada Malayalam Tamil Telugu Thai".split(" ");
const PREAMBLE = String.raw`\documentclass[border=6pt]{standalone}
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
`;
const LATIN = "\\usepackage[T1]{fontenc}\n\\usepackage{lmodern}\n";
const UNICODE = (font, shaping) => String.raw`\ifLuaTeX\else
  \errmessage{This document has characters that pdflatex lacks: compile it with lualatex}
\fi
\usepackage{fontspec}
% Any font that has the characters of these sentences:
\IfFontExistsTF{${font}}{\setmainfont{${font}}[Renderer=HarfBuzz, ${shaping}]}{}
\newcommand\leftwards[1]{{\textdir TRT #1}}
`;

/** Return a LaTeX document with a tree, or with two side by side, as `onlstm draw --format latex` writes it. */
export function latex(trees) {
  const styles = ["only here", "missed"];
  const forests = trees.map(({ tree, marked }, k) => forest(tree, marked, styles[k]));
  const body = "  " + forests.map(([text]) => text).join(" &\n  ");
  const depth = Math.max(1, ...forests.map(([, levels]) => levels));
  const latin = !NO_PDFLATEX.test(body), font = WIDE.test(body) ? "Noto Serif CJK SC" : "FreeSerif";
  const shaping = SHAPED.filter((script) => new RegExp(`\\p{Script=${script}}`, "u").test(body));
  const fonts = latin ? LATIN : UNICODE(font, shaping.map((script) => `Script=${script}`).join(", "));
  const room = `${Math.max(3, Math.min(12, Math.floor(240 / depth)))}pt`;
  const head = `% Compile with ${latin ? "pdflatex" : "lualatex"}.\n${PREAMBLE.replace("%s", room)}${fonts}`;
  return `${head}\\begin{document}\n\\begin{tabular}{cc}\n${body}\n\\end{tabular}\n\\end{document}\n`;
}

function forest(tree, marked, style) {
  const mirrored = rightToLeft(tree.words);
  const [text, depth] = fold(tree, (i) => [`[{${tex(tree.words[i])}}]`, 0], (node, children) => {
    const marks = marked?.has(key(node.start, node.end)) ? `, ${style}` : "";
    const inside = (mirrored ? children.toReversed() : children).map(([part]) => part).join(" ");
    return [`[{${tex(node.label)}}${marks} ${inside}]`, 1 + Math.max(...children.map(([, levels]) => levels))];
  });
  return [`\\begin{forest} words below ${text}\\end{forest}`, depth];
}

function tex(text) {
  const escaped = [...visible(text).normalize("NFC")].map((char) => ESCAPES[char] ?? char).join("");
  return rightToLeft([text]) ? `\\leftwards{${escaped}}` : escaped;
}

/** Return the text with a replacement character for what XML forbids. */
function visible(text) {
  const plain = text.toWellFormed().replace(/[\u2028\u2029]/g, " ");
  return plain.replace(/[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
}
