// Follows a session with an EventSource and reports what happens to a test, in order.

let reported = Promise.resolve();

function report(url, told) {
  const send = () => fetch(url, { method: "POST", mode: "no-cors", body: JSON.stringify(told) });
  reported = reported.then(send);
}

// An EventSource whose requests have headers: a page sends the half of its login that is no cookie.
class HeaderEventSource extends EventTarget {
  CLOSED = 2;
  readyState = 0;
  lastEventId = "";

  constructor(url, headers) {
    super();
    this.read(url, headers);
  }

  async read(url, headers) {
    while (this.readyState !== this.CLOSED) {
      try {
        const last = this.lastEventId ? { "Last-Event-ID": this.lastEventId } : {};
        const answer = await fetch(url, { headers: { ...headers, ...last } });
        if (answer.ok) await this.take(answer);
        else this.readyState = this.CLOSED;
      } catch {
        this.readyState = 0;
      }
      this.dispatchEvent(new Event("error"));
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  }

  async take(answer) {
    this.readyState = 1;
    this.dispatchEvent(new Event("open"));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const blocks = (held + piece.value).split("\n\n");
      held = blocks.pop();
      for (const block of blocks) this.tell(block);
    }
  }

  tell(block) {
    const told = {};
    for (const line of block.split("\n")) told[line.split(": ", 1)[0]] = line.slice(line.indexOf(": ") + 2);
    if (told.id !== undefined) this.lastEventId = told.id;
    if (told.data === undefined) return;
    const event = new MessageEvent(told.event, { data: told.data, lastEventId: this.lastEventId });
    this.dispatchEvent(event);
  }
}

function follow(source, kinds, url) {
  source.addEventListener("open", () => report(url, { kind: "open" }));
  source.addEventListener("error", () => {
    report(url, { kind: "error", closed: source.readyState === source.CLOSED });
  });
  for (const kind of kinds) {
    source.addEventListener(kind, (event) => {
      report(url, { kind, id: event.lastEventId, data: JSON.parse(event.data) });
    });
  }
}
