// Trees of a grammar: the probability of each span given the words, by inside and outside, and the tree of the
// likeliest. P(A→BC) = left[A,B] right[A,C] (Simple PCFG, Liu et al. 2023). As in chart.cpp, the N
// numbers of a span are scaled so that the largest is 1, and the logarithm of the scale stands beside them.

import { addProduct, dot, largest, matrix, rowOf } from "./tensor.js";
import { bestSpans } from "./tree.js";

export class Grammar {
  constructor(description, tensors, tokenizer) {
    this.tokenizer = tokenizer;
    const N = (this.N = description.nonterminals), P = (this.P = description.preterminals);
    this.words = tensors.words;
    this.preterminals = tensors.preterminals;
    this.normaliser = tensors.normaliser;
    this.root = tensors.root.map(Math.exp);
    const rule = (side, a, b) => Math.exp(side.data[a * (N + P) + b]);
    const sides = (a, b) => (a < N ? rule(tensors.left, a, b) : rule(tensors.right, a - N, b));
    this.upSpans = filled(2 * N, N, (a, b) => sides(a, b)); // from a child to both sides of its parents
    this.upWords = filled(2 * N, P, (a, b) => sides(a, N + b));
    this.downSpans = filled(N, 2 * N, (b, a) => sides(a, b)); // and back
    this.downWords = filled(P, 2 * N, (b, a) => sides(a, N + b));
  }

  /** Return the log-probability of a word given each preterminal. */
  emission(id) {
    return addProduct(this.preterminals, rowOf(this.words, id), this.normaliser.map((x) => -x));
  }

  /**
   * Return the spans of the tree with the largest sum of probabilities, those of two words or more, with the
   * probability and the likeliest symbol of each; of words, their preterminals.
   */
  async read(ids, pause = () => false) {
    if (ids.length < 2) return { spans: [], tags: [] };
    const chart = new Chart(this, ids);
    if (!(await chart.inside(pause)) || !(await chart.outside(pause))) return null;
    const size = ids.length + 1;
    const spans = bestSpans(chart.probability, ids.length).map(([start, end]) => ({
      start,
      end,
      label: `N${chart.symbol[start * size + end]}`,
      probability: Math.min(1, chart.probability[start * size + end]),
    }));
    return { spans, tags: ids.map((_, i) => `T${chart.symbol[i * size + i + 1]}`), logZ: chart.logZ };
  }
}

class Chart {
  constructor(grammar, ids) {
    const n = ids.length, cells = (n + 1) * (n + 1);
    Object.assign(this, { grammar, ids, n, size: n + 1 });
    this.spans = Array(cells); // inside; then outside
    this.sides = Array(cells); // what the span is as a left child, and as a right one
    this.scale = new Float64Array(cells);
    this.probability = new Float32Array(cells);
    this.symbol = new Int32Array(cells).fill(-1);
  }

  at(i, j) {
    return i * this.size + j;
  }

  async inside(pause) {
    const { n, grammar: { N, upSpans, upWords } } = this;
    this.ids.forEach((id, i) => {
      const logs = this.grammar.emission(id), top = largest(logs), cell = this.at(i, i + 1);
      this.spans[cell] = logs.map((x) => Math.exp(x - top));
      this.scale[cell] = top;
      this.sides[cell] = addProduct(upWords, this.spans[cell], new Float32Array(2 * N));
    });
    for (let width = 2; width <= n; width++) {
      for (let i = 0; i + width <= n; i++) {
        const j = i + width, cell = this.at(i, j), sum = new Float32Array(N);
        let top = -Infinity;
        for (let k = i + 1; k < j; k++) top = Math.max(top, this.scale[this.at(i, k)] + this.scale[this.at(k, j)]);
        for (let k = i + 1; k < j; k++) {
          const weight = Math.exp(this.scale[this.at(i, k)] + this.scale[this.at(k, j)] - top);
          const x = this.sides[this.at(i, k)], y = this.sides[this.at(k, j)];
          for (let a = 0; a < N; a++) sum[a] += weight * x[a] * y[N + a];
        }
        const most = largest(sum);
        this.spans[cell] = sum.map((x) => x / most);
        this.scale[cell] = top + Math.log(most);
        if (width < n) this.sides[cell] = addProduct(upSpans, this.spans[cell], new Float32Array(2 * N));
      }
      if (await pause()) return false;
    }
    return true;
  }

  async outside(pause) {
    const { n, grammar: { N, P, root, downSpans, downWords } } = this;
    const whole = this.at(0, n), z = dot(this.spans[whole], root);
    this.logZ = Math.log(z) + this.scale[whole];
    this.posterior(0, n, root.map((x) => x / z));
    for (let width = n - 1; width >= 1; width--) {
      for (let i = 0; i + width <= n; i++) {
        const j = i + width, here = this.scale[this.at(i, j)], sides = new Float32Array(2 * N);
        for (let k = j + 1; k <= n; k++) { // as a left child: parents [i, k), whose right child is [j, k)
          const weight = Math.exp(here + this.scale[this.at(j, k)] - this.scale[this.at(i, k)]);
          const x = this.sides[this.at(j, k)], y = this.spans[this.at(i, k)];
          for (let a = 0; a < N; a++) sides[a] += weight * x[N + a] * y[a];
        }
        for (let k = 0; k < i; k++) { // as a right child: parents [k, j), whose left child is [k, i)
          const weight = Math.exp(here + this.scale[this.at(k, i)] - this.scale[this.at(k, j)]);
          const x = this.sides[this.at(k, i)], y = this.spans[this.at(k, j)];
          for (let a = 0; a < N; a++) sides[N + a] += weight * x[a] * y[a];
        }
        const down = width === 1 ? addProduct(downWords, sides, new Float32Array(P)) : null;
        this.posterior(i, j, down ?? addProduct(downSpans, sides, new Float32Array(N)));
      }
      if (await pause()) return false;
    }
    return true;
  }

  /** Note the probability and the likeliest symbol of a span; its outside takes the place of its inside. */
  posterior(i, j, outside) {
    const cell = this.at(i, j), inside = this.spans[cell];
    if (j - i > 1) this.probability[cell] = dot(inside, outside);
    let best = 0;
    for (let a = 1; a < inside.length; a++) if (inside[a] * outside[a] > inside[best] * outside[best]) best = a;
    this.symbol[cell] = best;
    this.spans[cell] = outside;
  }
}

function filled(rows, columns, value) {
  const made = matrix(rows, columns);
  for (let a = 0; a < rows; a++) for (let b = 0; b < columns; b++) made.data[a * columns + b] = value(a, b);
  return made;
}
