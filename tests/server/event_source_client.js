// Follows a session with an EventSource and reports what happens to a test, in order.

let reported = Promise.resolve();

function report(url, told) {
  const send = () => fetch(url, { method: "POST", mode: "no-cors", body: JSON.stringify(told) });
  reported = reported.then(send);
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
