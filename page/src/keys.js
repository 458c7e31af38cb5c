// Keyboard shortcuts and the colour theme.
const THEMES = ["auto", "light", "dark"];
const KEY = "dragent-stream:theme";

export function setUpTheme(button) {
  let theme = "auto";
  try {
    theme = localStorage.getItem(KEY) ?? "auto";
  } catch {
    // Storage is off: the system decides.
  }
  const apply = () => {
    if (!THEMES.includes(theme)) theme = "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Lasts as long as the page.
    }
    apply();
  });
  apply();
}

export function bindKeys({ stop, newChat, prompt, filter, main, dialog }) {
  const events = document.getElementById("toggle-timeline");
  const toggle = () => {
    const on = main.dataset.timeline === "off";
    main.dataset.timeline = on ? "on" : "off";
    events.setAttribute("aria-pressed", String(on));
  };
  events.addEventListener("click", toggle);
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  addEventListener("keydown", (event) => {
    if (dialog.open) return;
    if (event.altKey && !event.ctrlKey && !event.metaKey) {
      const act = {
        KeyN: newChat, KeyE: toggle, KeyD: () => document.getElementById("theme").click(),
      }[event.code];
      if (act) {
        event.preventDefault();
        act();
      }
      return;
    }
    if (event.key === "Escape") {
      stop();
      return;
    }
    const writing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (writing || event.ctrlKey || event.metaKey) return;
    if (event.key === "/") {
      event.preventDefault();
      prompt.focus();
    } else if (event.key === "f") {
      event.preventDefault();
      if (main.dataset.timeline === "off") toggle();
      filter.focus();
    } else if (event.key === "?") {
      dialog.showModal();
    }
  });
}
