// Run jobs through CopilotKit's runtime, and past it, with the AG-UI client that the runtime itself uses.
// usage: echo '[{"url": URL, "input": <RunAgentInput>}, ...]' | node through_runtime.mjs
// prints [{direct: {messages, ended, error}, runtime: {messages, ended, error}}, ...] as JSON.
import { readFileSync } from "node:fs";

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
const { HttpAgent } = await import("@ag-ui/client");
const { CopilotRuntime, InMemoryAgentRunner, createCopilotRuntimeHandler } = await import("@copilotkit/runtime/v2");

const written = [];
console.log = console.info = console.debug = () => {};
console.warn = console.error = (...parts) => written.push(parts.map(String).join(" ").slice(0, 300));

async function run(agent, input) {
  let ended = null;
  let error = null;
  const subscriber = {
    onRunFailed: ({ error: failure }) => { error ??= String(failure?.message ?? failure); },
    onRunFinishedEvent: () => { ended = "RUN_FINISHED"; },
    onRunErrorEvent: ({ event }) => { ended = `RUN_ERROR ${event.code ?? ""} ${event.message}`.trim(); },
  };
  try {
    await agent.runAgent({ runId: input.runId, tools: input.tools ?? [], context: [], forwardedProps: {} }, subscriber);
  } catch (failure) {
    error ??= String(failure?.message ?? failure);
  }
  return { messages: agent.messages, ended, error, written: written.splice(0) };
}

const results = [];
for (const { url, input } of JSON.parse(readFileSync(0, "utf-8"))) {
  const conversation = { threadId: input.threadId, initialMessages: input.messages };
  const direct = await run(new HttpAgent({ url, ...conversation }), input);
  const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url }) }, runner: new InMemoryAgentRunner() });
  const handler = createCopilotRuntimeHandler({ runtime, basePath: "/api" });
  const behind = new HttpAgent({
    url: "http://runtime/api/agent/default/run",
    fetch: (target, options) => handler(new Request(target, options)),
    ...conversation,
  });
  results.push({ direct, runtime: await run(behind, { ...input, runId: `${input.runId}-runtime` }) });
}
process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0));
