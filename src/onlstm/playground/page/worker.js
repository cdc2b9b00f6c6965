// The worker: one model, which reads one sentence at a time and drops it as soon as there is a newer one. Messages:
//
//   page → worker   {file}: load file.json and file.bin    {id, text}: read a sentence
//   worker → page   {loaded, total}, {ready: facts}, {error}, or {id, result}

import { Grammar } from "./grammar.js";
import { LanguageModel } from "./model.js";
import { unpack } from "./tensor.js";
import { Tokenizer } from "./tokenizer.js";

export const MOST_WORDS = 250;

/** Return the model of two files; `report` is called with the bytes that have come and those that will. */
export async function load(file, report = () => {}) {
  const description = await (await got(`${file}.json`)).json();
  const response = await got(`${file}.bin`), buffer = new Uint8Array(description.bytes);
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    buffer.set(value.subarray(0, buffer.length - loaded), loaded);
    report((loaded += value.length), buffer.length);
  }
  const tensors = unpack(description, buffer.buffer, loaded, `${file}.bin`);
  const tokenizer = new Tokenizer(description.tokenizer, description.vocabulary);
  const model = new { grammar: Grammar, model: LanguageModel }[description.kind](description, tensors, tokenizer);
  const { name, kind, trust, layers, parse_layer: layer } = description;
  return { model, facts: { name, kind, trust, layers, layer, words: description.vocabulary.length } };
}

async function got(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response;
}

/** Return what a model makes of a text: its tokens, and what its network or its rules say of them. */
export async function read(model, text, pause) {
  const all = model.tokenizer.tokens(text), tokens = all.slice(0, MOST_WORDS);
  const reading = await model.read(tokens.map((token) => token.id), pause);
  const unknown = tokens.map((token) => model.tokenizer.isUnknown(token.id));
  return reading && { text, tokens, unknown, left: all.length - tokens.length, ...reading };
}

let model, newest = 0;
const turn = () => new Promise((resolve) => setTimeout(resolve));

async function answer({ data: { file, id, text } }) {
  try {
    if (file) {
      const loading = await load(file, (loaded, total) => postMessage({ loaded, total }));
      model = loading.model;
      postMessage({ ready: loading.facts });
    } else {
      newest = id;
      let rested = performance.now();
      const result = await read(model, text, async () => {
        if (performance.now() - rested < 25) return false;
        await turn(); // lets a newer sentence come in
        rested = performance.now();
        return newest !== id;
      });
      if (result && newest === id) postMessage({ id, result });
    }
  } catch (error) {
    postMessage({ id, error: error.message });
  }
}

if (typeof WorkerGlobalScope !== "undefined") onmessage = answer;
