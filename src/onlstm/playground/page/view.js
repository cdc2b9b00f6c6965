// From what a model says of a sentence to what is shown of it: the tree by the layer and decoder that were chosen, how
// sure each bracket is, and the state of affairs after any number of words.

import { levelsOf } from "./figure.js";
import { key, makeTree, reasons, spanKeys, spans, treeFromDistances, vote } from "./tree.js";

/** Return the layers, from 1, that a choice names: "2", "1,3"; all of them for a vote; the model's own for "". */
export function layersOf(choice, facts) {
  if (choice === "vote") return Array.from({ length: facts.layers }, (_, k) => k + 1);
  const named = choice.split(",").map(Number).filter((layer) => layer >= 1 && layer <= facts.layers);
  return named.length ? [...new Set(named)].sort((a, b) => a - b) : [facts.layer];
}

/** Return the choices of layers: each, averages of several, the vote of all. */
export function layerChoices({ layers, layer }) {
  const numbers = Array.from({ length: layers }, (_, k) => k + 1);
  const choices = numbers.map((k) => [k === layer ? "" : String(k), `layer ${k}${k === layer ? " (its own)" : ""}`]);
  if (layers === 3) choices.push(["1,2", "average of 1 and 2"], ["2,3", "average of 2 and 3"]);
  if (layers > 1) choices.push([numbers.join(","), "average of all"], ["vote", "vote of all layers"]);
  return choices;
}

/**
 * Return the view of a sentence, or of its first `time` words.
 *
 * @param facts of the model: kind, layers, layer
 * @param result what the worker answered
 * @param chosen {layer, decoder, lines, gates, heat, labels}
 */
export function viewOf(facts, result, chosen, time = Infinity) {
  const words = result.tokens.map((token) => token.text), read = Math.min(time, words.length);
  const view = { words, unknown: result.unknown, read, stepping: read < words.length, confidence: new Map() };
  if (!words.length) return { ...view, tree: null };
  if (facts.kind === "grammar") return { ...view, ...grammarView(words, result, chosen) };
  const layers = layersOf(chosen.layer, facts), voting = chosen.layer === "vote";
  const all = result.distances[chosen.gates];
  const average = words.map((_, i) => layers.reduce((sum, layer) => sum + all[layer - 1][i], 0) / layers.length);
  const treeOf = (length) => {
    const some = words.slice(0, length), decoded = (d) => treeFromDistances(d.slice(0, length), some, chosen.decoder);
    return voting ? vote(all.map(decoded)).tree : decoded(average);
  };
  const tree = read ? treeOf(read) : null;
  const shown = {
    tree, layers, voting, distances: voting ? null : average, surprisal: result.surprisal,
    decoder: chosen.decoder, fresh: new Set(),
  };
  if (tree) {
    shown.confidence = confidence(tree, all, average, voting, chosen);
    if (view.stepping && read > 1) shown.fresh = fresh(tree, treeOf(read - 1));
  }
  const steps = time <= words.length && words.length <= 60 ? words : []; // so that the words stay where they are
  shown.levels = Math.max(0, ...steps.map((_, k) => levelsOf(treeOf(k + 1))));
  return { ...view, ...shown, ...heatOf(result, layers, voting, chosen, view) };
}

/** Return how sure each bracket is, 0 to 1: the share of the layers' trees that have it, or its distance's margin. */
function confidence(tree, all, average, voting, { lines, decoder }) {
  if (lines === "even") return new Map();
  const inner = spans(tree), n = tree.words.length;
  if (lines === "votes" || voting) {
    const trees = all.map((d) => spanKeys(treeFromDistances(d.slice(0, n), tree.words, decoder)));
    const share = (name) => trees.filter((other) => other.has(name)).length / trees.length;
    return new Map(inner.map((span) => [key(...span), share(key(...span))]));
  }
  const d = average.slice(0, n), range = Math.max(...d) - Math.min(...d) || 1;
  const sure = (span) => (2.5 * reasons(d, span, decoder).margin) / range;
  return new Map(inner.map((span) => [key(...span), Math.min(1, Math.max(0, sure(span)))]));
}

const fresh = (tree, before) => {
  const known = spanKeys(before);
  return new Set([...spanKeys(tree)].filter((span) => !known.has(span)));
};

/** Return the columns of the heat map; in `memory`, how much is left of the state after each word. */
function heatOf(result, layers, voting, { heat, gates }, { read, stepping }) {
  if (voting || layers.length > 1) return { gates: null };
  const kind = heat === "auto" ? (stepping ? "memory" : gates) : heat;
  const forget = result.gates.forget[layers[0] - 1], input = result.gates.input[layers[0] - 1];
  const names = { forget: "forget gate", input: "input gate", memory: "memory" };
  const erased = stepping && read ? forget[read - 1].map((value) => 1 - value) : null;
  const facts = { forget, heatName: names[kind], erased };
  if (kind !== "memory") return { ...facts, gates: kind === "input" ? input : forget };
  const left = [];
  for (let s = read - 1; s >= 0; s--) { // the newest word's column: what it has kept of all before it
    left[s] = s >= read - 2 ? forget[read - 1].slice() : left[s + 1].map((value, m) => value * forget[s + 1][m]);
  }
  return { ...facts, gates: left };
}

function grammarView(words, result, { lines, labels }) {
  const nodes = result.spans.map(({ start, end, label }) => ({ start, end, label: labels ? label : "" }));
  const tags = labels ? result.tags.map((label, i) => ({ start: i, end: i + 1, label })) : [];
  const inner = result.spans.filter(({ start, end }) => end - start < words.length);
  const sure = inner.map(({ start, end, probability }) => [key(start, end), probability]);
  return {
    tree: words.length ? makeTree(words, [...nodes, ...tags]) : null, decoder: "mbr", distances: null, gates: null,
    confidence: new Map(lines === "even" ? [] : sure), probability: new Map(sure), read: words.length, stepping: false,
    symbols: new Map(result.spans.map(({ start, end, label }) => [key(start, end), label])),
  };
}

/** Return the words over which a row of the master gate keeps its content: from one erasure to the next. */
export function keptSpan(forget, word, row, read) {
  let start = word, end = word + 1;
  while (start > 0 && forget[start][row] >= 0.5) start--;
  while (end < read && forget[end][row] >= 0.5) end++;
  return [start, end];
}
