// The page: fields and buttons, and what is drawn whenever one of them, or what a model says, changes.

import { fold, rightToLeft } from "./figure.js";
import { Model } from "./workers.js";
import { figuresOf, html, markDifferences, Panels } from "./panels.js";
import { EXAMPLES, fromFragment, LONGEST, toFragment } from "./settings.js";
import { bracketText, json, latex, png, svgText } from "./takeaway.js";
import { aligned, f1, readBrackets } from "./tree.js";
import { layerChoices, viewOf } from "./view.js";

const SELECTS = ["model", "layer", "decoder", "lines", "heat", "beside", "besideLayer", "besideDecoder"];
const STEP = 750; // milliseconds a word, when playing
const $ = (id) => document.getElementById(id);

let settings = fromFragment(location.hash);
let models = [], shown = [], timer = 0, drawing = 0, noting = 0;
const panels = new Panels($("panels"), say);

start().catch((error) => complain(error.message));

async function start() {
  const response = await fetch("models.json");
  if (!response.ok) throw new Error(`models.json: ${response.status} ${response.statusText}`);
  models = (await response.json()).map((entry) => new Model(entry, heard));
  document.body.classList.add("ready");
  $("page").hidden = false;
  const example = ([name, text]) => html("button", { type: "button", onclick: () => write(text) }, name);
  $("examples").append(...EXAMPLES.map(example));
  fillModels();
  restore();
  listen();
  ask();
}

// -------------------------------------------------------------------------------------------------------- settings

const first = () => models.find((model) => model.name === settings.model) ?? models[0];

/** Return what stands beside the tree: a model, "gold", or null. */
function beside() {
  if (settings.beside === "gold") return "gold";
  if (settings.beside === "none") return null;
  return models.find((model) => model.name === settings.beside) ?? models.find((model) => model !== first()) ?? null;
}

function fillModels() {
  $("model").replaceChildren(...models.map(({ name }) => html("option", { value: name }, name)));
  const others = [["none", "nothing"], ...models.map(({ name }) => [name, name]), ["gold", "a gold tree"]];
  $("beside").replaceChildren(...others.map(([value, text]) => html("option", { value }, text)));
}

/** Put the settings into the fields. */
function restore() {
  settings.model = first().name;
  $("text").value = settings.text;
  $("gold").value = settings.gold;
  $("labels").checked = settings.labels;
  const second = beside();
  for (const [id, model] of [["layer", first()], ["besideLayer", second]]) {
    const choices = model?.facts?.layers ? layerChoices(model.facts) : [[settings[id], "…"]];
    $(id).replaceChildren(...choices.map(([value, text]) => html("option", { value }, text)));
    if (!choices.some(([value]) => value === settings[id])) settings[id] = "";
  }
  for (const id of SELECTS) $(id).value = settings[id];
  $("beside").value = second === "gold" ? "gold" : second?.name ?? "none";
  const show = (selector, there) => document.querySelectorAll(selector).forEach((part) => (part.hidden = !there));
  const isNetwork = (model) => model?.kind === "model";
  show(".of-network", isNetwork(first()));
  show(".of-beside", isNetwork(second));
  show(".of-grammar", [first(), second].some((model) => model?.kind === "grammar"));
  show("#gold-box", second === "gold");
  show("#next-box, .steps", isNetwork(first()));
  const [margin, votes] = $("lines").options;
  margin.textContent = isNetwork(first()) ? "margin of the distance" : "probability";
  votes.hidden = !isNetwork(first());
  grow();
}

function set(changes) {
  Object.assign(settings, changes);
  clearTimeout(noting);
  noting = setTimeout(note, 200); // browsers do not let a page change its address all the time
}

/** Put the settings into the page's address. */
function note() {
  history.replaceState(null, "", toFragment(settings) || location.pathname + location.search);
}

function write(text) {
  stop();
  say("");
  set({ text, time: -1 });
  $("text").value = text;
  grow();
  ask();
}

/** Make the field of the sentence as high as the sentence is. */
function grow() {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight}px`;
}

// ---------------------------------------------------------------------------------------------------------- models

/** Have the models that are shown read the sentence; the second is loaded when the first has answered. */
function ask() {
  first().ask(settings.text);
  if (first().current && beside() instanceof Model) beside().ask(settings.text);
  draw();
}

function heard(model) {
  if (model.facts && !model.known) {
    model.known = true;
    restore();
  }
  if (model === first() && model.current && beside() instanceof Model) beside().ask(settings.text);
  draw(model === first() && model.current);
}

function complain(text) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", Boolean(text));
  $("page").hidden = false;
  document.body.classList.add("ready");
}

// --------------------------------------------------------------------------------------------------------- drawing

/** Draw at the next frame, once; or at once, if there is an answer to what was typed. */
function draw(now = false) {
  cancelAnimationFrame(drawing);
  if (now) paint();
  else drawing = requestAnimationFrame(paint);
}

function paint() {
  render();
  performance.clearMarks("drawn"); // for whoever measures: when was which sentence drawn?
  performance.mark("drawn", { detail: first().result?.text });
}

function render() {
  const model = first();
  report();
  if (!model.result) return;
  const time = settings.time < 0 ? Infinity : settings.time;
  const view = viewOf(model.facts, model.result, settings, time);
  shown = [{ view, result: model.result, caption: nameOf(model, settings) }];
  const second = beside();
  if (second === "gold") shown.push(...goldOf(view));
  else if (second?.result && second.result.text === model.result.text) {
    const chosen = { ...settings, layer: settings.besideLayer, decoder: settings.besideDecoder };
    const other = viewOf(second.facts, second.result, chosen, time);
    shown.push({ view: other, result: second.result, caption: nameOf(second, chosen) });
  }
  const views = shown.map((part) => part.view);
  const marked = views.length > 1 && markDifferences(...views);
  if (marked && second === "gold") shown[0].caption.push(` · F1 ${f1(views[0].tree, views[1].tree).toFixed(1)}`);
  else if (marked) shown[1].caption.push(` · ${f1(views[1].tree, views[0].tree).toFixed(0)} % of the brackets shared`);
  panels.show(views, shown.map((part) => part.caption));
  showTime(view);
  showNext(model.result, view);
  showText(view);
}

function nameOf({ name, facts }, { layer, decoder }) {
  if (facts.kind === "grammar") return [html("b", {}, name), " · grammar"];
  const choice = layerChoices(facts).find(([value]) => value === layer)?.[1] ?? "";
  const how = decoder === "paper" ? "the paper’s decoder" : "unbiased decoder";
  return [html("b", {}, name), ` · ${choice.replace(" (its own)", "")}, ${how}`];
}

/** Return the gold tree as it is to be shown, if it is one of these words; else say what is wrong with it. */
function goldOf(view) {
  if (!settings.gold.trim()) return [];
  try {
    const tree = aligned(readBrackets(settings.gold), view.words);
    return [{ view: { tree, words: view.words, confidence: new Map() }, caption: [html("b", {}, "gold")] }];
  } catch (error) {
    $("status").textContent = `The gold tree: ${error.message}.`;
    $("status").classList.add("bad");
    return [];
  }
}

/** Say what is being loaded, what has gone wrong, and what of the text is not read. */
function report() {
  const asked = [first(), beside()].filter((model) => model instanceof Model);
  const errors = asked.filter((model) => model.error).map((model) => model.error);
  const loading = asked.filter((model) => model.worker && !model.facts && !model.error);
  const lines = loading.map(({ name, share }) => `Loading ${name}: ${Math.round(100 * (share ?? 0))} %`);
  const result = first().result;
  if (result?.left) lines.push(`The first ${result.tokens.length} words are read; ${result.left} are left out.`);
  if (result && result.text.trim() && !result.tokens.length) lines.push("There is no word in it.");
  if (result?.unknown.some(Boolean)) {
    const share = result.unknown.filter(Boolean).length / result.unknown.length;
    lines.push(`Words in italics are not in the vocabulary${share > 0.3 ? ": do not trust this tree" : ""}.`);
  }
  $("status").textContent = [...errors, ...lines].join(" ");
  $("status").classList.toggle("bad", errors.length > 0);
}

function showTime(view) {
  const n = view.words.length;
  $("time").max = String(n);
  $("time").value = String(view.read);
  $("time").setAttribute("aria-valuetext", view.read ? `${view.read} of ${n}: ${view.words[view.read - 1]}` : "none");
  $("clock").textContent = `${view.read} of ${n} words`;
  if (!view.stepping) return;
  const { read, words, distances, tree } = view, last = read - 1;
  const closed = tree ? tree.nodes.filter(({ start, end }) => end === last && end - start > 1) : [];
  const parts = read ? [`“${words[last]}” comes in`] : ["Nothing has been read yet"];
  if (read && distances) parts[0] += ` and erases ${(100 * distances[last]).toFixed(0)} % of the memory`;
  const names = closed.map(({ start, end }) => `“${words.slice(start, end).join(" ")}”`);
  if (names.length) parts.push(`Closed: ${names.join(", ")}`);
  say(`${parts.join(". ")}.`);
}

function showNext(result, view) {
  const words = result.next?.[view.read] ?? [], top = words[0]?.probability ?? 1;
  $("next-title").textContent = `Likeliest words after ${view.read ? `“${view.words[view.read - 1]}”` : "nothing"}`;
  $("next").replaceChildren(...words.map(({ word, probability }) => {
    const bar = html("i"), name = word === "<eos>" ? "end of sentence" : word;
    bar.style.width = `${(100 * probability) / top}%`;
    const share = `${(100 * probability).toFixed(1)} %`;
    const parts = [html("span", {}, name), bar, html("span", {}, share)];
    const button = html("button", { type: "button", onclick: () => append(word) }, ...parts);
    button.setAttribute("aria-label", `${name}, ${share}: append`);
    return html("li", {}, button);
  }));
}

function append(word) {
  const text = settings.text.trimEnd().replace(/[.!?…]+$/, "");
  write(word === "<eos>" ? `${text}.` : `${text}${text && " "}${word}`.slice(0, LONGEST));
}

function showText(view) {
  $("brackets").textContent = bracketText(view);
  const trusted = [...new Set([first(), beside()])].filter((model) => model?.facts?.trust);
  $("trust").textContent = trusted.map(({ name, facts }) => `${name}: ${shortened(facts.trust)}.`).join(" ");
  const item = (text, ...children) => html("li", {}, text, ...children);
  const list = shown.map(({ view: { tree }, caption }) => {
    const name = html("p", {}, ...caption.map((part) => part.textContent ?? part));
    if (!tree) return name;
    const root = fold(tree, (i) => item(tree.words[i]), ({ start, end, label }, children) => (
      item(`${label || "constituent"}, ${end - start} words`, html("ul", {}, ...children))));
    return html("div", {}, name, html("ul", {}, root));
  });
  $("list").replaceChildren(...list);
  $("list").dir = rightToLeft(view.words) ? "rtl" : "ltr";
  showLegend(view);
}

/** Return the line on how far to trust a model's trees, with the ranges of its scores instead of each. */
function shortened(line) {
  const scores = [...line.matchAll(/ (\d+) \((\d+)\)/g)];
  if (!scores.length) return line;
  const range = (k) => {
    const values = scores.map((score) => Number(score[k])), low = Math.min(...values), high = Math.max(...values);
    return low < high ? `${low}–${high}` : `${low}`;
  };
  return `its trees are guesses; F1 ${range(1)} on ${scores.length} treebanks, right-branching trees ${range(2)}`;
}

function showLegend(view) {
  const marks = shown.some((part) => part.view.marked?.size);
  const entries = [
    [marks, "only-here", "only in the first tree"], [marks, "only-there", "only in the second"],
    [shown.some((part) => part.view.confidence.size), "sure", "heavier: surer"],
    [view.distances, "bar", "distance: how high the boundary before a word is"],
    [view.gates, "heat", `${view.heatName}, 0 to 1: high-ranking neurons on top`],
    [view.erased, "erased", "erased by this word"],
  ];
  $("legend").replaceChildren(...entries.filter(([there]) => there).map(([, className, text]) => (
    html("span", {}, html("i", { className }), text))));
}

function say(text) {
  if ($("readout").textContent !== text) $("readout").textContent = text;
}

// -------------------------------------------------------------------------------------------------- time, and events

function stop() {
  clearInterval(timer);
  timer = 0;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "Play: read word by word");
}

function play() {
  if (timer) return stop();
  const n = first().result?.tokens.length ?? 0;
  if (!n) return undefined;
  if (settings.time < 0 || settings.time >= n) seek(0);
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "Pause");
  timer = setInterval(() => {
    seek(settings.time + 1);
    if (settings.time < 0) stop();
  }, STEP);
  return undefined;
}

/** Show the state of affairs after some words; after all of them, the whole sentence. */
function seek(time) {
  const n = first().result?.tokens.length ?? 0;
  set({ time: time >= n ? -1 : Math.max(0, time) });
  if (settings.time < 0) say("");
  draw();
}

function listen() {
  $("text").addEventListener("input", () => write($("text").value.slice(0, LONGEST)));
  $("gold").addEventListener("input", () => {
    set({ gold: $("gold").value.slice(0, LONGEST) });
    draw();
  });
  $("gold-words").addEventListener("click", () => {
    try {
      const { words, nodes } = readBrackets(settings.gold);
      const traces = new Set(nodes.filter((node) => node.label === "-NONE-").map((node) => node.start));
      write(words.filter((_, i) => !traces.has(i)).join(" "));
    } catch (error) {
      complain(`The gold tree: ${error.message}.`);
    }
  });
  for (const id of SELECTS) {
    $(id).addEventListener("change", () => {
      set({ [id]: $(id).value });
      restore();
      ask();
    });
  }
  $("labels").addEventListener("change", () => {
    set({ labels: $("labels").checked });
    draw();
  });
  $("time").addEventListener("input", () => {
    stop();
    seek(Number($("time").value));
  });
  $("play").addEventListener("click", play);
  $("take").addEventListener("click", (event) => event.target.dataset.take && take(event.target.dataset.take));
  $("theme").addEventListener("click", turnTheme);
  addEventListener("hashchange", () => {
    clearTimeout(noting);
    stop();
    say("");
    settings = fromFragment(location.hash);
    restore();
    ask();
  });
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) draw();
    width = contentRect.width;
  }).observe($("panels"));
}

function turnTheme() {
  const root = document.documentElement, themes = { undefined: "dark", dark: "light", light: undefined };
  const theme = themes[root.dataset.theme];
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  $("theme").setAttribute("aria-label", `Theme: ${theme ?? "as the system has it"}`);
}

// ------------------------------------------------------------------------------------------------------- take away

async function take(kind) {
  if (kind === "link") return copyLink();
  if (!shown.length || !shown[0].view.tree) return say("There is no tree to take away.");
  const [figure] = figuresOf([shown[0].view], 1100), title = shown[0].view.words.join(" ");
  const picture = svgText(figure.element, title);
  const content = {
    svg: () => picture,
    png: () => png(picture, figure.width, figure.height),
    tex: () => latex(shown.map((part) => part.view).filter((view) => view.tree)),
    txt: () => `${bracketText(shown[0].view)}\n`,
    json: () => `${json(shown[0].view, shown[0].result)}\n`,
  }[kind];
  const blob = new Blob([await content()], { type: kind === "png" ? "image/png" : "text/plain" });
  const link = html("a", { href: URL.createObjectURL(blob), download: `tree.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return say(`tree.${kind} saved`);
}

async function copyLink() {
  const url = location.href.split("#")[0] + toFragment(settings);
  try {
    await navigator.clipboard.writeText(url);
    say("The link is copied: it restores all of this.");
  } catch {
    say(url); // no access to the clipboard
  }
}
