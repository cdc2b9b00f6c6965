// The language model: embedding, a stack of ON-LSTM layers, softmax; and how it reads a sentence, word by word.

import { distances, step } from "./cell.js";
import { addProduct, dot, logSumExp, rowOf } from "./tensor.js";

const NEXT = 10;

export class LanguageModel {
  constructor(description, tensors, tokenizer) {
    this.tokenizer = tokenizer;
    this.chunkSize = description.chunk_size;
    this.embedding = tensors.embedding;
    this.decoder = tensors["decoder.weight"] ?? tensors.embedding;
    this.bias = tensors["decoder.bias"];
    this.logits = new Float32Array(this.bias.length);
    this.layers = Array.from({ length: description.layers }, (_, k) => ({
      w_ih: tensors[`layers.${k}.w_ih`],
      w_hh: tensors[`layers.${k}.w_hh`],
      bias: tensors[`layers.${k}.bias`],
    }));
    this.start = this.after(null, tokenizer.eos); // where every sentence starts: after <eos>, read from a zero state
    this.positions = [this.start];
  }

  /** Return what the network is after one more word: states, master gates, distances, and the words that may follow. */
  after(position, id) {
    const states = [], gates = [];
    let x = rowOf(this.embedding, id);
    this.layers.forEach(({ w_ih, w_hh, bias }, k) => {
      const D = w_hh.shape[1];
      const { h, c } = position ? position.states[k] : { h: new Float32Array(D), c: new Float32Array(D) };
      const now = step(addProduct(w_hh, h, addProduct(w_ih, x, bias.slice())), c, this.chunkSize);
      states.push({ h: now.h, c: now.c });
      gates.push(now.gates);
      x = now.h;
    });
    this.logits.set(this.bias); // one array for all words: they are large
    const logits = addProduct(this.decoder, x, this.logits);
    const logZ = logSumExp(logits);
    const surprisal = position ? position.logZ - this.logit(position, id) : 0;
    const likeliest = top(logits, NEXT, this.tokenizer.unknown);
    const next = likeliest.map((word) => ({ id: word, probability: Math.exp(logits[word] - logZ) }));
    return { id, states, gates, distances: gates.map(distances), logZ, surprisal, next };
  }

  logit(position, id) {
    return dot(rowOf(this.decoder, id), position.states.at(-1).h) + this.bias[id];
  }

  /**
   * Return what the network makes of a sentence: of each layer, distances and master gates; surprisals in nats; the
   * likeliest words after none, one, two, … of its words. Words that stood there at the last call are not computed
   * again. Every few words `pause` is awaited; if it returns true, nobody wants the sentence any more: return null.
   */
  async read(ids, pause = () => false) {
    let known = 0;
    while (known < ids.length && this.positions[known + 1]?.id === ids[known]) known++;
    this.positions.length = known + 1;
    for (const id of ids.slice(known)) {
      this.positions.push(this.after(this.positions.at(-1), id));
      if (this.positions.length % 8 === 0 && (await pause())) return null;
    }
    const words = this.positions.slice(1), last = this.positions.at(-1), { vocabulary, eos } = this.tokenizer;
    const kinds = ["forget", "input"];
    const byLayer = (part) => Object.fromEntries(
      kinds.map((kind) => [kind, this.layers.map((_, k) => words.map((word) => word[part][k][kind]))]),
    );
    return {
      computed: ids.length - known,
      distances: byLayer("distances"),
      gates: byLayer("gates"),
      surprisal: words.map((word) => word.surprisal),
      eos: last.logZ - this.logit(last, eos),
      next: this.positions.map(({ next }) => next.map(({ id, ...rest }) => ({ word: vocabulary[id], ...rest }))),
    };
  }
}

/** Return the indices of the largest values, largest first, but one that is left out. */
function top(values, count, without) {
  const best = [];
  for (let k = 0; k < values.length; k++) {
    if (k === without || (best.length === count && values[k] <= values[best.at(-1)])) continue;
    let place = best.length;
    while (place && values[k] > values[best[place - 1]]) place--;
    best.splice(place, 0, k);
    best.length = Math.min(best.length, count);
  }
  return best;
}
