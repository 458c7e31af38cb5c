// Ask for every shape with npm openai's `.stream()`; arguments as in client_openai.py, then the major version; its output.
import { readFileSync } from "node:fs";

const { default: OpenAI } = await import(`openai-${process.argv[3]}`);
const { VERSION } = await import(`openai-${process.argv[3]}/version`);
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });

async function read(name) {
  const stream = client.chat.completions.stream({
    model: name,
    messages: [{ role: "user", content: "hi" }],
    stream_options: { include_usage: true },
  });
  const order = [];
  stream.on("tool_calls.function.arguments.delta", (event) => order.push(`delta ${event.index}`));
  stream.on("tool_calls.function.arguments.done", (event) => order.push(`done ${event.index}`));
  try {
    return { answer: await stream.finalChatCompletion(), order };
  } catch (error) {
    return { raised: `${error.constructor.name}: ${error.message}`, answer: stream.currentChatCompletionSnapshot, order };
  }
}

const shapes = {};
for (const name of JSON.parse(readFileSync(0, "utf8"))) shapes[name] = await read(name);
console.log(JSON.stringify({ version: VERSION, shapes }));
