// The conversation: one element per message, kept by id, changed only where the message has changed.
import { markdown } from "./markdown.js";

const STATES = {
  arguments: "writing arguments", working: "working", done: "done", cut: "stopped", waiting: "no result",
};

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function pretty(json) {
  try {
    const value = JSON.parse(json);
    const line = JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
    return line.length <= 72 ? line : JSON.stringify(value, null, 2);
  } catch {
    return json;
  }
}

function plain(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => part.text ?? `[${part.type}]`).join("\n");
}

export class Chat {
  constructor(box, toEnd) {
    this.box = box;
    this.toEnd = toEnd;
    this.views = new Map();
    this.calls = new Map(); // toolCallId -> arguments | ended
    this.open = new Set(); // ids of messages being written
    this.pinned = true;
    this.running = false;
    this.pending = null;
    box.addEventListener("scroll", () => {
      this.pinned = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      toEnd.hidden = this.pinned;
    });
    toEnd.addEventListener("click", () => this.scroll(true));
  }

  show(messages) {
    this.views.clear();
    this.calls.clear();
    this.open.clear();
    this.running = false;
    this.pinned = true;
    this.box.replaceChildren();
    if (!messages.length) {
      this.box.append(element("p", "empty", "Say something to the agent. Every event of the run shows beside it."));
    }
    this.draw(messages);
  }

  begin(messages) {
    for (const notice of this.box.querySelectorAll(".empty, .notice.error")) notice.remove();
    this.running = true;
    this.pinned = true;
    this.draw(messages);
  }

  end(messages) {
    this.running = false;
    this.open.clear();
    this.draw(messages);
  }

  interrupted(messages) {
    this.draw(messages);
    this.notice("The page was left while the agent was answering.");
  }

  event(event) {
    switch (event.type) {
      case "TOOL_CALL_START":
        this.calls.set(event.toolCallId, "arguments");
        break;
      case "TOOL_CALL_END":
        this.calls.set(event.toolCallId, "ended");
        break;
      case "TEXT_MESSAGE_START":
      case "REASONING_MESSAGE_START":
        this.open.add(event.messageId);
        break;
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        this.open.delete(event.messageId);
        break;
      default:
        return;
    }
    this.update(this.latest);
  }

  // Deltas may come faster than frames are painted: draw once per frame.
  update(messages) {
    this.latest = messages ?? this.latest;
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      if (this.running) this.draw(this.latest);
    });
  }

  draw(messages) {
    if (!messages) return;
    this.latest = messages;
    const results = new Map();
    for (const message of messages) if (message.role === "tool") results.set(message.toolCallId, message);
    for (const message of messages) {
      if (message.role === "user") this.user(message);
      else if (message.role === "assistant") this.assistant(message, results);
      else if (message.role === "reasoning") this.reasoning(message);
    }
    this.scroll();
  }

  view(message, make) {
    let view = this.views.get(message.id);
    if (!view) {
      view = make();
      view.node.dataset.id = message.id;
      this.views.set(message.id, view);
      this.box.append(view.node);
    }
    return view;
  }

  user(message) {
    this.view(message, () => {
      const node = element("article", "message user");
      node.append(element("div", "", plain(message.content)));
      return { node };
    });
  }

  assistant(message, results) {
    const view = this.view(message, () => {
      const node = element("article", "message assistant");
      const body = element("div", "body");
      const calls = element("div", "calls");
      node.append(body, calls);
      return { node, body, calls, text: "", byId: new Map() };
    });
    const text = plain(message.content);
    if (text !== view.text) {
      view.text = text;
      view.body.replaceChildren(...markdown(text));
    }
    view.node.classList.toggle("streaming", this.running && this.open.has(message.id));
    for (const call of message.toolCalls ?? []) this.call(view, call, results.get(call.id));
  }

  reasoning(message) {
    const view = this.view(message, () => {
      const node = element("details", "message reasoning");
      const summary = element("summary", "", "Thinking");
      const body = element("div", "body");
      node.append(summary, body);
      node.open = this.running;
      return { node, summary, body, text: "", thinking: this.running };
    });
    const text = plain(message.content);
    if (text !== view.text) {
      view.text = text;
      view.body.textContent = text;
    }
    const thinking = this.running && this.open.has(message.id);
    view.summary.textContent = thinking ? "Thinking" : "Thought";
    if (view.thinking && !thinking && text) view.node.open = false;
    view.thinking = thinking;
  }

  call(view, call, result) {
    let card = view.byId.get(call.id);
    if (!card) {
      const node = element("div", "call");
      node.dataset.callId = call.id;
      const head = element("div", "call-head");
      const state = element("span", "call-state");
      head.append(element("span", "call-name", call.function.name), state);
      const args = element("pre", "arguments");
      const label = element("p", "label", "result");
      const output = element("pre", "result");
      label.hidden = output.hidden = true;
      node.append(head, args, label, output);
      view.calls.append(node);
      card = { node, state, args, label, output };
      view.byId.set(call.id, card);
    }
    const written = this.calls.get(call.id) !== "arguments";
    const state = result ? "done" : this.running ? (written ? "working" : "arguments") : written ? "waiting" : "cut";
    card.node.dataset.state = state;
    card.state.textContent = STATES[state];
    const text = written ? pretty(call.function.arguments) : call.function.arguments;
    if (card.args.textContent !== text) card.args.textContent = text;
    card.args.hidden = text === "" || text === "{}";
    if (result) {
      const output = plain(result.content);
      card.label.hidden = card.output.hidden = output === "";
      if (output === "") card.state.textContent = "done, nothing returned";
      else card.output.textContent = pretty(output);
    }
  }

  notice(text) {
    this.box.append(element("p", "notice", text));
    this.scroll();
  }

  error(text, retry) {
    const node = element("div", "notice error");
    node.setAttribute("role", "alert");
    node.append(element("span", "", text));
    if (retry) {
      const button = element("button", "", "Try again");
      button.type = "button";
      button.addEventListener("click", () => {
        node.remove();
        retry();
      });
      node.append(button);
    }
    this.box.append(node);
    this.scroll();
  }

  scroll(force = false) {
    if (force) this.pinned = true;
    if (this.pinned) this.box.scrollTop = this.box.scrollHeight;
  }
}
