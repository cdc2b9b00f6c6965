// Trees: from distances, from votes and from brackets; as spans, as brackets; and how well two of them agree.
//
// A tree is {words, nodes}: nodes are {start, end, label}, in preorder, with one over all words if there are several.

export const key = (start, end) => `${start},${end}`;

/** Return the tree of nodes in any order, those of a unary chain from the top. */
export function makeTree(words, nodes) {
  const n = words.length;
  const ordered = nodes.toSorted((a, b) => a.start - b.start || b.end - a.end); // stable: a chain stays as it is
  if (n > 1 && !(ordered[0]?.start === 0 && ordered[0].end === n)) ordered.unshift({ start: 0, end: n });
  return { words, nodes: ordered.map(({ start, end, label }) => ({ start, end, label: label || "" })) };
}

/** Return the [start, end] of nodes longer than a word, sorted, each once, the whole sentence left out. */
export function spans({ words, nodes }) {
  const inner = nodes.filter(({ start, end }) => end - start > 1 && end - start < words.length);
  const unique = new Map(inner.map(({ start, end }) => [key(start, end), [start, end]]));
  return [...unique.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

export const spanKeys = (tree) => new Set(spans(tree).map(([start, end]) => key(start, end)));

/**
 * Return the binary tree that top-down splitting at the largest distance builds, in O(n); of equal ones the first wins.
 *
 * The paper's decoder makes ((x<i) (x_i (x>i))) of the words around the largest distance; the unbiased one makes
 * ((x<i) (x>=i)) and never looks at the distance of the first word of a part (Dyer et al. 2019).
 */
export function treeFromDistances(d, words, decoder) {
  if (decoder === "unbiased") {
    return makeTree(words, reach(d.slice(1)).map(([, left, right]) => ({ start: left + 1, end: right + 1 })));
  }
  const parts = [];
  for (const [i, left, right] of reach(d)) {
    if (right - left > 2) parts.push({ start: left + 1, end: right });
    if (left + 1 < i && i < right - 1) parts.push({ start: i, end: right });
  }
  return makeTree(words, parts);
}

/** Return for each i: i, the nearest j < i with d[j] >= d[i] or -1, the nearest j > i with d[j] > d[i] or d.length. */
function reach(d) {
  const left = d.map(() => -1), right = d.map(() => d.length), falling = [];
  d.forEach((x, i) => {
    while (falling.length && d[falling.at(-1)] < x) right[falling.pop()] = i;
    if (falling.length) left[i] = falling.at(-1);
    falling.push(i);
  });
  return d.map((_, i) => [i, left[i], right[i]]);
}

/**
 * Return how a bracket came about: the words whose distances stand around it, the word with the largest one inside,
 * and by how much the lower of the former exceeds the latter.
 */
export function reasons(d, [start, end], decoder) {
  const inside = (from) => {
    let top = from;
    for (let k = from; k < end; k++) if (d[k] > d[top]) top = k;
    return from < end ? top : -1;
  };
  const first = decoder === "paper" ? start : start + 1;
  const top = inside(first), before = decoder === "paper" ? start - 1 : start;
  const around = [before, end].filter((k) => (decoder === "paper" ? k >= 0 : k > 0) && k < d.length);
  if (decoder === "paper" && top === start && d[before] < d[top]) around[0] = start; // the largest, and what follows it
  const lowest = Math.min(...around.map((k) => d[k]));
  const largest = around.includes(top) ? inside(start + 1) : top;
  return { around, largest, margin: around.length && largest >= 0 ? lowest - d[largest] : 0 };
}

/** Return the binary tree that shares most spans with the trees, and the share of the votes of each of its spans. */
export function vote(trees) {
  const { words } = trees[0], n = words.length, counts = new Float64Array((n + 1) * (n + 1));
  for (const tree of trees) for (const [start, end] of [...spans(tree), [0, n]]) counts[start * (n + 1) + end] += 1;
  const tree = makeTree(words, bestSpans(counts, n).map(([start, end]) => ({ start, end })));
  const share = ([start, end]) => counts[start * (n + 1) + end] / trees.length;
  return { tree, confidence: spans(tree).map(share) };
}

/**
 * Return the spans, of two words or more, of the binary tree with the largest sum of scores; that of [i, j) is at
 * scores[i (n + 1) + j]. Of equally good splits the leftmost wins. CKY, O(n^3).
 */
export function bestSpans(scores, n) {
  const size = n + 1, best = new Float64Array(size * size), split = new Int32Array(size * size);
  for (let width = 2; width <= n; width++) {
    for (let i = 0; i + width <= n; i++) {
      const j = i + width;
      let top = -Infinity;
      for (let k = i + 1; k < j; k++) {
        const sum = best[i * size + k] + best[k * size + j];
        if (sum > top) [top, split[i * size + j]] = [sum, k];
      }
      best[i * size + j] = top + scores[i * size + j];
    }
  }
  const found = [], open = n > 1 ? [[0, n]] : [];
  while (open.length) {
    const [i, j] = open.pop(), k = split[i * size + j];
    found.push([i, j]);
    for (const [start, end] of [[k, j], [i, k]]) if (end - start > 1) open.push([start, end]);
  }
  return found;
}

/** Return F1, 0 to 100, by the rule on-lstm: unlabelled spans but the whole sentence; nothing to find scores 100. */
export function f1(tree, gold) {
  const ours = spanKeys(tree), theirs = spanKeys(gold);
  if (!ours.size && !theirs.size) return 100;
  const correct = [...ours].filter((span) => theirs.has(span)).length;
  return (200 * correct) / (ours.size + theirs.size);
}

/** Return the tree on one line, as (NP the cat) or ( the cat ); parentheses in words as -LRB-, -RRB-. */
export function brackets({ words, nodes }) {
  let text = "", k = 0;
  const open = [];
  words.forEach((word, i) => {
    for (; k < nodes.length && nodes[k].start === i; k++) {
      open.push(nodes[k]);
      text += ` (${nodes[k].label}`;
    }
    text += " " + word.replaceAll("(", "-LRB-").replaceAll(")", "-RRB-");
    while (open.length && open.at(-1).end === i + 1) text += open.pop().label ? ")" : " )";
  });
  return text.slice(1);
}

const TOKEN = /(\()([^\s()]+)?|(\))|([^\s()]+)/g;
const HEAD = /\((?:([^\s()]+)|(?=\())/g;

/** Return the one tree in brackets; throw an Error that says what is wrong with them. */
export function readBrackets(text) {
  const heads = [...text.matchAll(HEAD)].map((match) => match[1] ?? "");
  const upper = heads.filter((head) => /^[\x21-\x7e]+$/.test(head) && head === head.toUpperCase() && !/^\d/.test(head));
  const labelled = 2 * upper.length > heads.length;
  const words = [], nodes = [], open = [];
  const unescaped = (word) => word.replaceAll("-LRB-", "(").replaceAll("-RRB-", ")");
  let whole = false;
  for (const [, opening, touching, closing, word] of text.matchAll(TOKEN)) {
    if (whole) throw new Error("more than one tree");
    if (opening) {
      open.push({ start: words.length, label: labelled ? touching : "" });
      nodes.push(open.at(-1));
      if (touching && !labelled) words.push(unescaped(touching));
    } else if (closing) {
      const node = open.pop();
      if (!node) throw new Error("a ) without a (");
      node.end = words.length;
      if (node.start === node.end) throw new Error("empty brackets");
      whole = !open.length;
    } else if (open.length) words.push(unescaped(word));
    else throw new Error(`“${word.slice(0, 40)}” stands outside the brackets`);
  }
  if (open.length) throw new Error("an unclosed (");
  if (!whole) throw new Error("no tree");
  return makeTree(words, nodes);
}

/**
 * Return a gold tree over the words of a sentence: what it has besides, punctuation and traces, is left out, and so are
 * its tags. Throw an Error if its words are others.
 */
export function aligned(gold, words) {
  const traces = new Set(gold.nodes.filter((node) => node.label === "-NONE-").map((node) => node.start));
  const plain = (word) => word.toLowerCase().replace(/[‘’]/g, "'").replace(/\\\//g, "/");
  const before = [0]; // how many of the gold tree's first words are in the sentence
  gold.words.forEach((word, i) => {
    const k = before[i], same = k < words.length && plain(word) === plain(words[k]);
    if (!same && !traces.has(i) && /[\p{L}\p{N}]/u.test(word)) {
      const there = k < words.length ? `has “${words[k]}”` : "has ended";
      throw new Error(`it has “${word}” where the sentence ${there}`);
    }
    before.push(k + (same ? 1 : 0));
  });
  if (before.at(-1) < words.length) throw new Error(`it ends before “${words[before.at(-1)]}”`);
  const moved = gold.nodes.map(({ start, end, label }) => ({ start: before[start], end: before[end], label }));
  return makeTree(words, moved.filter(({ start, end }) => end - start > 1));
}
