// Reads the server: the token, answers, and the stream that says which sweeps have changed.

const found = document.getElementById("data");
// The data of a report, which has no server; null in the studio.
export const inside = found && JSON.parse(found.textContent);

const KEY = "automl-token";
const channel = inside ? {} : new BroadcastChannel("automl-studio");

channel.onmessage = ({ data }) => {
  const token = sessionStorage.getItem(KEY);
  if (data === "token?" && token) channel.postMessage({ token });
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Take the token from the address; else from another page of this studio that is open.
export async function greet() {
  const given = /(?:^|[#&])token=([\w-]+)/.exec(location.hash);
  if (given) {
    keep(given[1]);
    history.replaceState(history.state, "", location.pathname + location.search);
  }
  if (sessionStorage.getItem(KEY)) return;
  await new Promise((done) => {
    const answered = ({ data }) => {
      if (!data.token) return;
      keep(data.token);
      done();
    };
    channel.addEventListener("message", answered);
    channel.postMessage("token?");
    setTimeout(() => { channel.removeEventListener("message", answered); done(); }, 300);
  });
}

export function keep(token) {
  sessionStorage.setItem(KEY, token);
}

// What was remembered; a frame of a notebook may store nothing.
export function remembered(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return value ?? null;
  }
}

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function answered(path, signal) {
  const reply = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (reply.ok) return reply;
  const body = await reply.json().catch(() => ({}));
  throw new Refused(reply.status, body.error || `the server answered ${reply.status}`);
}

// Send JSON, and get the answer.
export async function post(path, body) {
  const sent = { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch(path, sent);
  const found = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Refused(reply.status, found.error || `the server answered ${reply.status}`);
  return found;
}

export async function get(path, signal) {
  return (await answered(path, signal)).json();
}

// The path of a sweep, its parts escaped.
export function path(sweep, ...parts) {
  return ["/sweeps", sweep, ...parts].map((part, i) => (i ? encodeURIComponent(part) : part)).join("/");
}

// Calls `changed` with each message, `connected` with whether the stream is open. Ends never.
// `followed()` gives the sweep that the page shows, and its table: then messages have what changed in them.
// The function that it returns opens the stream anew, for another page.
export function follow(changed, connected, followed) {
  let stop = new AbortController();
  run();
  return () => stop.abort("another page");

  async function run() {
    for (;;) {
      let moved = false;
      stop = new AbortController();
      stop.signal.addEventListener("abort", () => { moved = true; });
      try {
        const reply = await answered(`/api/events${query(followed())}`, stop.signal);
        connected(true);
        const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          const events = (text + value).split("\n\n");
          text = events.pop();
          for (const event of events) {
            if (event.startsWith("data: ")) changed(JSON.parse(event.slice(6)));
          }
        }
      } catch (error) {
        if (error?.status === 401) return;
      }
      if (moved) continue;
      connected(false);
      await new Promise((resume) => setTimeout(resume, 1000));
    }
  }
}

function query(found) {
  return found ? `?sweep=${encodeURIComponent(found.name)}&since=${found.table?.version ?? 0}&epoch=${found.table?.epoch ?? 0}` : "";
}
