// The paper: cumax and the ON-LSTM cell, in the paper's own equations; cell.py in JavaScript, name by name.
//
// Shen et al. 2019, "Ordered Neurons: Integrating Tree Structures into Recurrent Neural Networks"; numbers in
// parentheses at a line's end are its equations.
//
//   code          paper                 meaning
//   D, C          D, C                  hidden size, chunkSize
//   M             D_m = D / C           master-gate width: each entry governs a chunk of C neighbouring neurons
//   h, c          h_t, c_t              hidden state and cell state
//   o, g, i, f    o_t, c^_t, i_t, f_t   the stock LSTM's output gate, candidate, input gate, forget gate
//   f_m, i_m      f~_t, i~_t            master forget gate (rises 0 -> 1), master input gate (falls 1 -> 0)
//   omega         ω_t                   where the two master gates overlap: incomplete constituents
//   f_hat, i_hat  f^_t, i^_t            the gates that act on the cell
//   distance      d^^f_t / D_m          expected split point, one number per word: a large one closes much

import { logSumExp } from "./tensor.js";

/** Order of the row blocks of every weight and bias: K, K, D, D, D, D rows. */
export const GATES = ["i_m", "f_m", "o", "g", "i", "f"];

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Return cumsum(softmax(logits)): the expectation of a gate (0, …, 0, 1, …, 1) (6)-(8). */
export function cumax(logits) {
  const logZ = logSumExp(logits);
  let sum = 0;
  return Float32Array.from(logits, (logit) => (sum += Math.exp(logit - logZ)));
}

/**
 * Return the master gates of their logits, M entries wide (9)-(10).
 *
 * With K = M logits the last forget entry is always 1 and the last input entry 0: the last chunk is never written (the
 * paper's cell). K = M + 1 logits free it: the entry that is always 1 belongs to no chunk.
 */
export function masterGates(forget, input, M) {
  const f_m = cumax(forget).subarray(0, M); //                   (9)
  const i_m = cumax(input).subarray(0, M).map((x) => 1 - x); // (10)
  return { forget: f_m, input: i_m };
}

/** Return the split-point distances in [0, 1] of master gates: 1 - mean f_m, which is (15) / D_m, and mean i_m. */
export function distances(gates) {
  return { forget: 1 - mean(gates.forget), input: mean(gates.input) };
}

/** Return the new states and the master gates, from the pre-activations W x_t + U h_{t-1} + b and the cell state. */
export function step(gates, cPrev, chunkSize) {
  const D = cPrev.length, K = (gates.length - 4 * D) / 2;
  const logits = split(gates, [K, K, D, D, D, D]);

  const f = logits.f.map(sigmoid); //   (1)
  const i = logits.i.map(sigmoid); //   (2)
  const o = logits.o.map(sigmoid); //   (3)
  const g = logits.g.map(Math.tanh); // (4)

  const master = masterGates(logits.f_m, logits.i_m, D / chunkSize);

  const h = new Float32Array(D), c = new Float32Array(D);
  for (let n = 0; n < D; n++) {
    const chunk = Math.floor(n / chunkSize);
    const f_m = master.forget[chunk], i_m = master.input[chunk];
    const omega = f_m * i_m; //                    (11)
    const f_hat = f[n] * omega + (f_m - omega); // (12)
    const i_hat = i[n] * omega + (i_m - omega); // (13)
    c[n] = f_hat * cPrev[n] + i_hat * g[n]; //     (14)
    h[n] = o[n] * Math.tanh(c[n]); //               (5)
  }
  return { h, c, gates: master };
}

/** Return the row blocks of pre-activations by the names of their gates. */
function split(gates, sizes) {
  let start = 0;
  return Object.fromEntries(GATES.map((name, k) => [name, gates.subarray(start, (start += sizes[k]))]));
}
