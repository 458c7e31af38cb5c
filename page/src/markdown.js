// The small part of Markdown that models write, as DOM nodes; never as HTML text.
const INLINE = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(\*[^*\s][^*\n]*\*)/;

export function markdown(text) {
  const nodes = [];
  let paragraph = [];
  let list = null;
  const endParagraph = () => {
    if (paragraph.length) nodes.push(withInline("p", paragraph.join("\n")));
    paragraph = [];
  };
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = line.match(/^\s*(`{3,}|~{3,})/);
    if (fence) {
      endParagraph();
      list = null;
      const code = [];
      while (++at < lines.length && !lines[at].trim().startsWith(fence[1])) code.push(lines[at]);
      const pre = document.createElement("pre");
      pre.append(document.createElement("code"));
      pre.firstChild.textContent = code.join("\n");
      nodes.push(pre);
      continue;
    }
    const item = line.match(/^\s*(?:([-*+])|(\d+)[.)])\s+(.*)$/);
    if (item) {
      endParagraph();
      const tag = item[1] ? "ul" : "ol";
      if (list?.tagName.toLowerCase() !== tag) {
        list = document.createElement(tag);
        if (item[2]) list.start = Number(item[2]);
        nodes.push(list);
      }
      list.append(withInline("li", item[3]));
      continue;
    }
    const heading = line.match(/^#{1,6}\s+(.*)$/);
    if (heading || !line.trim()) {
      endParagraph();
      if (heading) nodes.push(withInline("h3", heading[1]));
      if (heading || !line.trim()) list = heading ? null : list;
      continue;
    }
    list = null;
    paragraph.push(line);
  }
  endParagraph();
  return nodes;
}

function withInline(tag, text) {
  const node = document.createElement(tag);
  let rest = text;
  for (let found = rest.match(INLINE); found; found = rest.match(INLINE)) {
    node.append(rest.slice(0, found.index));
    const [whole, code, strong] = found;
    const inner = document.createElement(code ? "code" : strong ? "strong" : "em");
    inner.textContent = code ? whole.slice(1, -1) : strong ? whole.slice(2, -2) : whole.slice(1, -1);
    node.append(inner);
    rest = rest.slice(found.index + whole.length);
  }
  node.append(rest);
  return node;
}
