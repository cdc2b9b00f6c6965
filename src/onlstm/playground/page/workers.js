// The models of this page, each in a worker of its own, which is started when the model is first asked for.

export class Model {
  /** `changed` is called whenever there is something new: loaded bytes, facts, a result or an error. */
  constructor({ name, kind, file }, changed) {
    Object.assign(this, { name, kind, file, changed, asked: 0, answered: 0 });
  }

  /** Have the model read a text; `result` is what it says of the newest text that it has read. */
  ask(text) {
    if (this.text === text) return;
    this.text = text;
    this.asked += 1;
    if (!this.worker) {
      this.worker = new Worker("worker.js", { type: "module" });
      this.worker.onmessage = ({ data }) => this.hear(data);
      this.worker.onerror = (event) => this.hear({ error: event.message || "the worker could not be started" });
      this.worker.postMessage({ file: this.file });
    } else if (this.facts) this.send();
  }

  /** Whether the result is of the newest text. */
  get current() {
    return this.result !== undefined && this.answered === this.asked;
  }

  send() {
    this.worker.postMessage({ id: this.asked, text: this.text });
  }

  hear({ loaded, total, ready, error, id, result }) {
    if (loaded) this.share = loaded / total;
    if (error) this.error = error;
    if (ready) {
      this.facts = ready;
      this.send();
    }
    if (result) [this.result, this.answered, this.error] = [result, id, ""];
    this.changed(this);
  }
}
