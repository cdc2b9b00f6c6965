// What a person has chosen, as plain data, and as the fragment of the page's address. Whatever comes from an address is
// checked: what is not a known choice is left out.

export const EXAMPLES = [
  ["short", "The cat that the dogs chased was tired."],
  ["garden path", "The horse raced past the barn fell."],
  ["relative clause", "She said that the old house that her father had built by the river had been sold."],
  ["attachment", "He saw the man with the telescope in the garden."],
  ["another script", "הילדה הקטנה קראה ספר ישן בגן"],
];
export const LONGEST = 4000;

const DEFAULTS = {
  text: EXAMPLES[0][1],
  model: "",
  layer: "", // "2", "1,2" for the average of several, "vote"; "" for the model's own
  decoder: "paper",
  lines: "margin", // the weight of lines: margin, votes, even
  heat: "auto", // forget, input, memory; auto: memory while stepping, else forget
  gates: "forget", // whose distances
  beside: "", // a model, "gold" or "none"; "" for the first other model
  besideLayer: "",
  besideDecoder: "unbiased",
  gold: "",
  time: -1, // how many words are read; -1: all
  labels: false,
};
const CHOICES = {
  layer: /^(|vote|[1-9]\d?(,[1-9]\d?)*)$/,
  besideLayer: /^(|vote|[1-9]\d?(,[1-9]\d?)*)$/,
  decoder: /^(paper|unbiased)$/,
  besideDecoder: /^(paper|unbiased)$/,
  lines: /^(margin|votes|even)$/,
  heat: /^(auto|forget|input|memory)$/,
  gates: /^(forget|input)$/,
  time: /^\d{1,4}$/,
  labels: /^(true|false)$/,
};

/** Return the settings that a fragment describes, with the defaults for all others. */
export function fromFragment(fragment) {
  const settings = { ...DEFAULTS };
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (!Object.hasOwn(DEFAULTS, name) || (CHOICES[name] && !CHOICES[name].test(value))) continue;
    const kind = typeof DEFAULTS[name];
    const read = { number: Number, boolean: (text) => text === "true", string: (text) => text.slice(0, LONGEST) };
    settings[name] = read[kind](value);
  }
  return settings;
}

/** Return the fragment of settings: those that are not the defaults. */
export function toFragment(settings) {
  const changed = Object.entries(settings).filter(([name, value]) => value !== DEFAULTS[name]);
  return changed.length ? `#${new URLSearchParams(changed.map(([name, value]) => [name, String(value)]))}` : "";
}
