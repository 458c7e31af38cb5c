// Read one streamed chat completion with npm openai's `.stream()` or with the AI SDK: node one_stream.mjs CLIENT BASE_URL
import { jsonSchema, streamText, tool } from "ai-7";
import OpenAI from "openai-7";
import { createOpenAICompatible } from "openai-compatible-7";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [client, baseURL] = process.argv.slice(2);

async function openai() {
  const stream = new OpenAI({ baseURL, apiKey: "alice", maxRetries: 0 }).chat.completions.stream({
    model: "agent",
    messages: [{ role: "user", content: "please" }],
    stream_options: { include_usage: true },
  });
  const { choices, usage, model, id } = await stream.finalChatCompletion();
  const { content, tool_calls, role } = choices[0].message;
  const calls = (tool_calls ?? []).map((call) => [call.id, call.function.name, call.function.arguments]);
  return { role, text: content, calls, finish: choices[0].finish_reason, usage: usage?.total_tokens, model, id };
}

async function ai() {
  const provider = createOpenAICompatible({ name: "server", baseURL, apiKey: "alice", includeUsage: true });
  const any = tool({ inputSchema: jsonSchema({ type: "object" }) });
  const errors = [];
  const result = streamText({
    model: provider("agent"),
    prompt: "please",
    tools: { add: any, mul: any },
    maxRetries: 0,
    onError: ({ error }) => errors.push(error),
  });
  await result.consumeStream({ onError: () => {} });
  if (errors.length) throw new Error(errors[0].message ?? JSON.stringify(errors[0]));
  const calls = (await result.toolCalls).map((call) => [call.toolCallId, call.toolName, JSON.stringify(call.input)]);
  const { id, modelId } = await result.response;
  const usage = await result.usage;
  return { text: await result.text, calls, finish: await result.finishReason, usage: usage.totalTokens, model: modelId, id };
}

try {
  console.log(JSON.stringify(await { openai, ai }[client]()));
} catch (error) {
  console.log(JSON.stringify({ raised: error.message }));
}
