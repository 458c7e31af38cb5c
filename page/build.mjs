// Bundle the page into the Python package: app.js, its styles, the document, and which versions went in.
// usage: node build.mjs [target folder]
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../src/dragent_stream/asgi/page/static");
mkdirSync(target, { recursive: true });

const lock = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf-8"));
const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.js"],
  outfile: join(target, "app.js"),
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome110", "firefox115", "safari16"],
  legalComments: "none",
  metafile: true,
  define: { "process.env.NODE_ENV": '"production"' },
});

// Every package whose code is in the bundle, at the version that the lock file names, and its licence.
const licences = {};
const versions = { esbuild: lock.packages["node_modules/esbuild"].version };
for (const input of Object.keys(result.metafile.inputs)) {
  const found = input.match(/^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (!found) continue;
  const place = input.slice(0, found.index + found[0].length - 1);
  versions[found[1]] = lock.packages[place].version;
  const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].map((name) => join(here, place, name)).find(existsSync);
  licences[found[1]] = file ? readFileSync(file, "utf-8").trim() : `Licence: ${lock.packages[place].license}`;
}
const sorted = Object.fromEntries(Object.entries(versions).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(join(target, "versions.json"), `${JSON.stringify(sorted, null, 2)}\n`);
const notices = Object.entries(licences).sort(([a], [b]) => (a < b ? -1 : 1));
writeFileSync(
  join(target, "app.js.LICENSE.txt"),
  notices.map(([name, text]) => `${name} ${versions[name]}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`),
);
for (const file of ["index.html", "style.css"]) copyFileSync(join(here, "src", file), join(target, file));
