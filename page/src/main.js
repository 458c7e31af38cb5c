// The page: one conversation, its runs over the real HttpAgent, the chat on the left and the events on the right.
import { HttpAgent } from "@ag-ui/client";
import { Chat } from "./chat.js";
import { Timeline } from "./timeline.js";
import { bindKeys, setUpTheme } from "./keys.js";
import * as store from "./store.js";

const $ = (id) => document.getElementById(id);
const endpoint = document.querySelector('meta[name="agui-endpoint"]').content;
const url = new URL(endpoint.replace(/^\//, ""), document.baseURI).href;

const chat = new Chat($("messages"), $("to-end"));
const timeline = new Timeline({
  list: $("events"), count: $("event-count"), filter: $("filter"), counters: $("counters"),
});
const prompt = $("prompt");

let agent;
let run = null;
let leaving = false;

function open(saved) {
  agent = new HttpAgent({ url, threadId: saved?.threadId ?? newId(), initialMessages: saved?.messages ?? [] });
  chat.show(agent.messages);
  timeline.clear();
  for (const [at, event] of saved?.events ?? []) timeline.add(event, at);
  if (saved?.running) {
    chat.interrupted(agent.messages);
    setStatus("stopped", "interrupted by leaving the page");
  } else {
    setStatus("idle", "ready");
  }
}

function save() {
  store.save({ threadId: agent.threadId, messages: agent.messages, events: timeline.saved(), running: run !== null });
}

function newId() {
  // crypto.randomUUID needs a secure context; this page may be served over plain HTTP.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

function setStatus(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

async function send(text) {
  if (run || !text.trim()) return;
  agent.addMessage({ id: newId(), role: "user", content: text });
  await start();
}

async function start() {
  const current = (run = { id: newId(), began: performance.now(), events: 0, ending: null, stopping: false });
  chat.begin(agent.messages);
  timeline.begin();
  $("send").hidden = true;
  $("stop").hidden = false;
  const clock = setInterval(() => {
    const seconds = ((performance.now() - current.began) / 1000).toFixed(1);
    setStatus("running", `${current.stopping ? "stopping" : "running"} ${seconds} s, ${current.events} events`);
  }, 100);
  setStatus("running", "running");
  const subscriber = {
    onEvent({ event }) {
      current.events += 1;
      timeline.add(event);
      chat.event(event);
      if (event.type === "RUN_ERROR" || event.type === "RUN_FINISHED") current.ending = event;
    },
    onMessagesChanged({ messages }) {
      chat.update(messages);
    },
  };
  let failure = null;
  try {
    await agent.runAgent({ runId: current.id }, subscriber);
  } catch (error) {
    failure = error;
  }
  clearInterval(clock);
  if (run !== current || leaving) return;
  run = null;
  $("send").hidden = false;
  $("stop").hidden = true;
  finish(current, failure);
  save();
}

function finish(current, failure) {
  const seconds = ((performance.now() - current.began) / 1000).toFixed(1);
  const ending = current.ending;
  chat.end(agent.messages);
  if (failure) {
    const message = failureText(failure);
    chat.error(message, retry);
    timeline.note("failed", message);
    setStatus("error", "failed");
  } else if (current.stopping || ending?.outcome?.type === "cancelled" || ending?.code === "abort") {
    chat.notice("Stopped.");
    setStatus("stopped", `stopped after ${seconds} s`);
  } else if (ending?.type === "RUN_ERROR") {
    chat.error(ending.code ? `${ending.message} (${ending.code})` : ending.message, retry);
    setStatus("error", "failed");
  } else if (!ending) {
    chat.error("The stream ended without RUN_FINISHED or RUN_ERROR; the answer may be cut off.", retry);
    setStatus("error", "cut off");
  } else {
    if (ending.outcome?.type === "interrupt") chat.notice("The agent waits for a decision that this page cannot give.");
    setStatus("done", `done in ${seconds} s, ${current.events} events`);
  }
}

function failureText(error) {
  const refused = error?.payload?.error ?? error?.payload;
  if (error?.status) {
    return `The server refused the run (HTTP ${error.status}): ${refused?.message ?? error.message}`;
  }
  if (error instanceof TypeError) return "The server cannot be reached. Is it still running?";
  return String(error?.message ?? error);
}

function retry() {
  if (!run) start();
}

async function stop() {
  const current = run;
  if (!current || current.stopping) return;
  current.stopping = true;
  // The server ends the run in order. If it does not, leaving the connection ends it too.
  const late = setTimeout(() => run === current && agent.abortRun(), 3000);
  try {
    const query = new URLSearchParams({ threadId: agent.threadId });
    const answer = await fetch(`${url}/${encodeURIComponent(current.id)}/stop?${query}`, { method: "POST" });
    if (!answer.ok && run === current) agent.abortRun();
  } catch {
    if (run === current) agent.abortRun();
  }
  if (run !== current) clearTimeout(late);
}

function newChat() {
  if (run) agent.abortRun();
  run = null;
  $("send").hidden = false;
  $("stop").hidden = true;
  store.forget();
  open(null);
  prompt.focus();
}

function fitPrompt() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value;
  if (run || !text.trim()) return;
  prompt.value = "";
  fitPrompt();
  send(text);
});
prompt.addEventListener("input", fitPrompt);
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && !prompt.value) {
    const mine = agent.messages.filter((message) => message.role === "user" && typeof message.content === "string");
    if (mine.length) {
      event.preventDefault();
      prompt.value = mine.at(-1).content;
      fitPrompt();
    }
  }
});
$("stop").addEventListener("click", stop);
$("new-chat").addEventListener("click", newChat);
$("clear").addEventListener("click", () => timeline.clear());
$("download").addEventListener("click", () => timeline.download());
// Leaving breaks off the run, which is then no failure to report.
addEventListener("pagehide", () => {
  save();
  leaving = true;
});
addEventListener("pageshow", (event) => event.persisted && location.reload());

setUpTheme($("theme"));
bindKeys({ stop, newChat, prompt, filter: $("filter"), main: document.querySelector("main"), dialog: $("shortcuts") });
open(store.load());
