// Words and their ids. The rules are the model's own, rewritten for JavaScript by the program that wrote this page;
// here is how they are applied, and how a word is found again in the text as it was typed.

/** What NFC may join to a character before it: marks, and the vowels and finals of Hangul. */
const JOINED = /[^][\p{M}\u1160-\u11ff]*/gv;
const MARK = /[\p{M}\u1160-\u11ff]/v;

export class Tokenizer {
  constructor({ profile, steps, words, number }, vocabulary) {
    this.profile = profile;
    this.steps = steps.map(({ type, pattern, by }) => ({ type, by, pattern: pattern && new RegExp(pattern, "gv") }));
    this.words = new RegExp(words, "gv");
    this.number = number && new RegExp(number, "v");
    this.vocabulary = vocabulary;
    this.index = new Map(vocabulary.map((word, id) => [word, id]));
    this.unknown = this.index.get("<unk>");
    this.eos = this.index.get("<eos>");
  }

  /** Return the words of a text as {text, start, end, id}; offsets count characters, as Python does. */
  tokens(text) {
    const original = [...text.toWellFormed()];
    let written = Written.of(original);
    for (const step of this.steps) {
      if (step.type === "NFC") written = written.composed();
      else if (step.type === "Lowercase") written = written.lowered();
      else written = written.replaced(step.pattern, step.by);
    }
    const matches = [...written.text.matchAll(this.words)].map((match) => ({
      id: this.index.get(match[0]) ?? this.ending(match[0]),
      start: written.places[match.index],
      end: written.places[match.index + match[0].length - 1] + 1,
    }));
    const tokens = [];
    matches.forEach((match, k) => {
      const limit = matches[k + 1]?.start ?? original.length;
      const [start, end] = this.profile === "pretokenized"
        ? [match.start, match.end]
        : this.whole(original, tokens.at(-1)?.end ?? 0, match.start, match.end, limit);
      tokens.push({ text: original.slice(start, end).join(""), start, end, id: match.id });
    });
    return tokens;
  }

  isUnknown(id) {
    return this.vocabulary[id].startsWith("<unk>");
  }

  /** Return the id for unknown words with the longest ending of this one, of three letters at most. */
  ending(word) {
    const letters = [...word];
    for (let start = Math.max(1, letters.length - 3); start < letters.length; start++) {
      const id = this.index.get(`<unk> -${letters.slice(start).join("")}`);
      if (id !== undefined) return id;
    }
    return this.unknown;
  }

  /** Return the offsets with what the rules lose: the head of a number, marks that NFC joins to a letter. */
  whole(original, past, start, end, limit) {
    const number = this.number?.exec(original.slice(past, end).join(""));
    if (number) start = Math.min(start, past + [...number.input.slice(0, number.index)].length);
    while (end < limit && MARK.test(original[end])) end++;
    return [start, end];
  }
}

/** A text on its way through the rules; `places` says of each code unit which character of the original it is from. */
class Written {
  constructor(text, places) {
    this.text = text;
    this.places = places;
  }

  static of(characters) {
    return Written.joined(characters.map((character, place) => [character, place]));
  }

  static joined(pieces) {
    const places = [];
    for (const [piece, place] of pieces) for (let k = 0; k < piece.length; k++) places.push(place);
    return new Written(pieces.map(([piece]) => piece).join(""), places);
  }

  composed() {
    if (this.text.normalize("NFC") === this.text) return this;
    const pieces = [];
    for (const match of this.text.matchAll(JOINED)) {
      const places = [];
      for (let k = 0; k < match[0].length; k += match[0].codePointAt(k) > 0xffff ? 2 : 1) {
        places.push(this.places[match.index + k]);
      }
      const characters = [...match[0].normalize("NFC")], more = Math.max(0, characters.length - places.length);
      characters.forEach((character, k) => pieces.push([character, places[Math.max(0, k - more)]]));
    }
    return Written.joined(pieces);
  }

  lowered() {
    let k = 0;
    return Written.joined([...this.text].map((character) => {
      const place = this.places[k];
      k += character.length;
      return [character.toLowerCase(), place];
    }));
  }

  /** What replaces a match is from the match's last character. */
  replaced(pattern, by) {
    const places = [];
    let text = "", past = 0;
    for (const match of this.text.matchAll(pattern)) {
      const end = match.index + match[0].length;
      text += this.text.slice(past, match.index) + by;
      places.push(...this.places.slice(past, match.index), ...Array(by.length).fill(this.places[end - 1]));
      past = end;
    }
    if (!past) return this;
    for (let k = past; k < this.places.length; k++) places.push(this.places[k]);
    return new Written(text + this.text.slice(past), places);
  }
}
