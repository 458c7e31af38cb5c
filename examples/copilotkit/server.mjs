// The page and CopilotKit's runtime, which passes every run on to the agent that dragent_stream serves.
// usage: AGENT_URL=http://127.0.0.1:8000/agui PORT=3000 node server.mjs
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { build } from "esbuild";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, InMemoryAgentRunner, createCopilotRuntimeHandler } from "@copilotkit/runtime/v2";
import { createCopilotNodeHandler } from "@copilotkit/runtime/v2/node";

const url = process.env.AGENT_URL ?? "http://127.0.0.1:8000/agui";
const port = Number(process.env.PORT ?? 3000);

const bundle = await build({
  entryPoints: ["main.jsx"],
  outdir: "out",
  bundle: true,
  write: false,
  minify: true,
  format: "esm",
  jsx: "automatic",
  loader: { ".woff": "dataurl", ".woff2": "dataurl", ".ttf": "dataurl" },
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "error",
});
const files = new Map([["/", ["text/html", readFileSync("index.html")]]]);
for (const { path, contents } of bundle.outputFiles) {
  if (path.endsWith(".js")) files.set("/main.js", ["text/javascript", contents]);
  if (path.endsWith(".css")) files.set("/main.css", ["text/css", contents]);
}

const runtime = new CopilotRuntime({
  agents: { default: new HttpAgent({ url }) },
  runner: new InMemoryAgentRunner(),
});
const copilotkit = createCopilotNodeHandler(createCopilotRuntimeHandler({ runtime, basePath: "/api/copilotkit" }));

createServer((request, response) => {
  if (request.url.startsWith("/api/copilotkit")) {
    copilotkit(request, response);
    return;
  }
  const file = files.get(request.url);
  response.writeHead(file ? 200 : 404, { "content-type": file?.[0] ?? "text/plain" });
  response.end(file?.[1] ?? "not found");
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}, agent at ${url}`));
