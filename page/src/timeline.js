// The events of the conversation's runs, oldest first; the deltas of one message share a row.
const KINDS = [
  ["RUN_ERROR", "error"], ["RUN_", "run"], ["TEXT_", "text"], ["TOOL_", "tool"], ["REASONING_", "reasoning"], ["STEP_", "step"],
];
const MAX_ROWS = 3000;
const MAX_SAVED = 2000;

function kindOf(type) {
  return KINDS.find(([start]) => type.startsWith(start))?.[1] ?? "other";
}

function summary(event) {
  const short = (id) => (id && id.length > 14 ? `${id.slice(0, 8)}…` : id);
  switch (event.type) {
    case "RUN_STARTED": return `run ${short(event.runId)}, protocol ${event.protocolVersion ?? "0.x"}`;
    case "RUN_FINISHED": return event.outcome?.type ?? "";
    case "RUN_ERROR": return `${event.code ?? ""} ${event.message}`.trim();
    case "TOOL_CALL_START": return `${event.toolCallName} ${short(event.toolCallId)}`;
    case "TOOL_CALL_RESULT": return `${short(event.toolCallId)} ${JSON.stringify(event.content)}`;
    case "STEP_STARTED": case "STEP_FINISHED": return event.stepName;
    case "CUSTOM": return `${event.name} ${JSON.stringify(event.value)}`;
    default: return short(event.messageId ?? event.toolCallId ?? event.entityId) ?? "";
  }
}

function oneLine(text) {
  return text.replace(/\n/g, "⏎");
}

export class Timeline {
  constructor({ list, count, filter, counters }) {
    Object.assign(this, { list, count, filter, counters });
    this.began = performance.now();
    this.clear();
    list.addEventListener("scroll", () => {
      this.pinned = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
    });
    list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.toggle(row.parentElement);
    });
    list.addEventListener("keydown", (event) => this.key(event));
    filter.addEventListener("input", () => this.applyFilter());
  }

  clear() {
    this.events = [];
    this.rows = [];
    this.last = null;
    this.current = null;
    this.pinned = true;
    this.list.replaceChildren();
    this.count.textContent = "0";
    this.counters.replaceChildren();
  }

  begin() {
    this.began = performance.now();
    this.run = { events: 0, deltas: 0, chars: 0, firstText: null };
    this.pinned = true;
    this.last = null;
  }

  add(event, at = Math.round(performance.now() - this.began)) {
    this.events.push([at, event]);
    this.count.textContent = String(this.events.length);
    const delta = typeof event.delta === "string" ? event.delta : null;
    const key = delta === null ? null : `${event.type} ${event.messageId ?? event.toolCallId}`;
    if (key && this.last?.key === key) {
      const row = this.last;
      row.events.push(event);
      row.text += delta;
      row.times.textContent = ` ×${row.events.length}`;
      // The end of what was written is what is new.
      row.what.textContent = oneLine(row.text.length > 160 ? `…${row.text.slice(-150)}` : row.text);
      if (row.detail) row.detail.textContent = this.json(row);
      this.match(row);
    } else {
      this.row(event, at, key, delta);
    }
    this.tally(event, at, delta);
    if (this.pinned) this.list.scrollTop = this.list.scrollHeight;
  }

  row(event, at, key, delta) {
    const node = document.createElement("li");
    node.dataset.kind = kindOf(event.type);
    node.dataset.type = event.type;
    node.classList.toggle("run", event.type === "RUN_STARTED");
    node.classList.toggle("failed", event.type === "RUN_ERROR");
    node.innerHTML = '<div class="row"><span class="time"></span><span class="type"></span><span class="what"></span></div>';
    const [time, type, what] = node.firstChild.children;
    time.textContent = `${at} ms`;
    type.textContent = event.type;
    const times = document.createElement("span");
    times.className = "times";
    type.append(times);
    what.textContent = oneLine(delta ?? summary(event));
    const row = { node, key, events: [event], text: delta ?? "", what, times, detail: null };
    this.rows.push(row);
    this.last = row;
    this.match(row);
    this.list.append(node);
    if (this.rows.length > MAX_ROWS) this.rows.shift().node.remove();
  }

  note(type, text) {
    const node = document.createElement("li");
    node.dataset.kind = "error";
    node.className = "failed";
    node.innerHTML = '<div class="row"><span class="time"></span><span class="type"></span><span class="what"></span></div>';
    node.firstChild.children[1].textContent = type;
    node.firstChild.children[2].textContent = text;
    this.rows.push({ node, key: null, events: [], text, what: node.firstChild.children[2], detail: null });
    this.last = null;
    this.list.append(node);
    if (this.pinned) this.list.scrollTop = this.list.scrollHeight;
  }

  tally(event, at, delta) {
    const run = this.run;
    if (!run) return;
    run.events += 1;
    if (delta !== null) {
      run.deltas += 1;
      run.chars += delta.length;
      if (event.type === "TEXT_MESSAGE_CONTENT") run.firstText ??= at;
    }
    if (event.type !== "RUN_FINISHED" && event.type !== "RUN_ERROR") return;
    const facts = [[at, "ms"], [run.events, "events"], [run.deltas, run.deltas === 1 ? "delta" : "deltas"]];
    if (run.firstText !== null) facts.push([run.firstText, "ms to the first text"]);
    for (const usage of event.usage ?? []) {
      const of = usage.model ? ` (${usage.model})` : "";
      if (usage.inputTokens !== undefined) facts.push([usage.inputTokens, `tokens in${of}`]);
      if (usage.outputTokens !== undefined) facts.push([usage.outputTokens, `tokens out${of}`]);
    }
    this.counters.replaceChildren(
      ...facts.map(([number, unit]) => {
        const fact = document.createElement("span");
        const value = document.createElement("b");
        value.textContent = String(number);
        fact.append(value, ` ${unit}`);
        return fact;
      }),
    );
  }

  json(row) {
    return row.events.map((event) => JSON.stringify(event, null, row.events.length > 1 ? 0 : 2)).join("\n");
  }

  toggle(node) {
    const row = this.rows.find((candidate) => candidate.node === node);
    if (!row?.events.length) return;
    if (row.detail) {
      row.detail.remove();
      row.detail = null;
    } else {
      row.detail = document.createElement("pre");
      row.detail.textContent = this.json(row);
      node.append(row.detail);
    }
  }

  key(event) {
    const shown = this.rows.filter((row) => !row.node.hidden);
    if (!shown.length) return;
    const at = shown.findIndex((row) => row.node === this.current);
    let next = null;
    if (event.key === "ArrowDown") next = Math.min(at + 1, shown.length - 1);
    else if (event.key === "ArrowUp") next = at < 0 ? shown.length - 1 : Math.max(at - 1, 0);
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = shown.length - 1;
    else if ((event.key === "Enter" || event.key === " ") && at >= 0) this.toggle(this.current);
    else return;
    event.preventDefault();
    if (next !== null) {
      this.current?.classList.remove("current");
      this.current = shown[next].node;
      this.current.classList.add("current");
      this.current.scrollIntoView({ block: "nearest" });
    }
  }

  match(row) {
    const wanted = this.filter.value.trim().toLowerCase();
    row.node.hidden =
      wanted !== "" && !row.events.some((event) => JSON.stringify(event).toLowerCase().includes(wanted)) &&
      !row.text.toLowerCase().includes(wanted);
  }

  applyFilter() {
    for (const row of this.rows) this.match(row);
  }

  saved() {
    return this.events.slice(-MAX_SAVED);
  }

  download() {
    const lines = this.events.map(([, event]) => `${JSON.stringify(event)}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
    link.download = "events.jsonl";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
