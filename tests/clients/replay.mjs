// Run streams through the HttpAgent of each AG-UI client version.
// usage: echo '<RunAgentInput JSON>' | node replay.mjs URL
//    or: echo '[{"url": URL, "input": <RunAgentInput>}, ...]' | node replay.mjs
// prints {version: {messages, events, error, finished, warnings}} as JSON, in the second form a list of them.
import { readFileSync } from "node:fs";

const CLIENTS = { "1.0.0": "agui-client-100", "0.0.59": "agui-client-0059", "0.0.55": "agui-client-0055" };

async function replay(pack, url, input) {
  const { HttpAgent } = await import(pack);
  const agent = new HttpAgent({
    url,
    threadId: input.threadId,
    initialMessages: input.messages ?? [],
    initialState: input.state ?? {},
  });
  let events = 0;
  let error = null;
  let finished = null;
  const subscriber = {
    onEvent: () => { events += 1; },
    onRunFailed: ({ error: failure }) => { error ??= String(failure?.message ?? failure); },
    onRunFinishedEvent: () => { finished = "RUN_FINISHED"; },
    onRunErrorEvent: ({ event }) => { finished = `RUN_ERROR ${event.code ?? ""}`.trim(); },
  };
  try {
    await agent.runAgent(
      {
        runId: input.runId,
        tools: input.tools ?? [],
        context: input.context ?? [],
        forwardedProps: input.forwardedProps ?? {},
      },
      subscriber,
    );
  } catch (failure) {
    error ??= String(failure?.message ?? failure);
  }
  return { messages: agent.messages, events, error, finished };
}

const warnings = [];
console.log = console.info = console.debug = () => {};
console.warn = console.error = (...parts) => warnings.push(parts.map(String).join(" ").slice(0, 300));
process.on("unhandledRejection", (failure) => warnings.push(`unhandled: ${failure?.message ?? failure}`));

async function replayAll({ url, input }) {
  const outcome = {};
  for (const [version, pack] of Object.entries(CLIENTS)) {
    warnings.length = 0;
    outcome[version] = { ...(await replay(pack, url, input)), warnings: [...warnings] };
  }
  return outcome;
}

const asked = JSON.parse(readFileSync(0, "utf-8"));
const url = process.argv[2];
const outcomes = [];
for (const job of url ? [{ url, input: asked }] : asked) outcomes.push(await replayAll(job));
process.stdout.write(`${JSON.stringify(url ? outcomes[0] : outcomes)}\n`);
