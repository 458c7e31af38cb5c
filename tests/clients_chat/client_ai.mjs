// Ask for every shape with the AI SDK, streamed and whole; arguments and output as in client_openai.mjs.
import { readFileSync } from "node:fs";

const major = process.argv[3];
const { createOpenAICompatible } = await import(`openai-compatible-${major}`);
const { generateText, jsonSchema, streamText, tool } = await import(`ai-${major}`);

globalThis.AI_SDK_LOG_WARNINGS = false;
const provider = createOpenAICompatible({
  name: "server",
  baseURL: process.argv[2],
  apiKey: "none",
  includeUsage: true,
});
const any = tool({ inputSchema: jsonSchema({ type: "object" }) });
const tools = { f: any, g: any, weather: any };

async function plain(result) {
  const response = await result.response;
  return {
    text: await result.text,
    reasoning: await result.reasoningText,
    toolCalls: await result.toolCalls,
    finishReason: await result.finishReason,
    usage: await result.usage,
    id: response.id,
    model: response.modelId,
    created: response.timestamp,
  };
}

async function streamed(request) {
  const errors = [];
  const result = streamText({ ...request, onError: ({ error }) => errors.push(error) });
  await result.consumeStream({ onError: () => {} });
  const answer = await plain(result);
  return errors.length ? { answer, raised: String(errors[0]?.name ?? errors[0]) } : { answer };
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    return { raised: error.name };
  }
}

const shapes = {};
for (const name of JSON.parse(readFileSync(0, "utf8"))) {
  const request = { model: provider(name), prompt: "hi", tools, maxRetries: 0 };
  shapes[name] = {
    streamed: await attempt(() => streamed(request)),
    whole: await attempt(async () => ({ answer: await plain(await generateText(request)) })),
  };
}
const { version } = JSON.parse(readFileSync(new URL(`node_modules/ai-${major}/package.json`, import.meta.url), "utf8"));
console.log(JSON.stringify({ version, shapes }));
