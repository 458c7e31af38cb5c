// What survives a reload of this tab: the conversation and its latest events.
const KEY = "dragent-stream:conversation";

export function load() {
  try {
    const saved = JSON.parse(sessionStorage.getItem(KEY));
    return saved && Array.isArray(saved.messages) ? saved : null;
  } catch {
    return null;
  }
}

export function save(conversation) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(conversation));
  } catch {
    // Too large for the browser's store, or storage is off: the conversation lives as long as the page.
    try {
      sessionStorage.setItem(KEY, JSON.stringify({ ...conversation, events: [] }));
    } catch {
      forget();
    }
  }
}

export function forget() {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Storage is off.
  }
}
