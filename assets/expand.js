// Expand: the prompt in more words, shown beside the old one and used only when it is accepted.
(() => {
  "use strict";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const promptField = () => find("#prompt textarea");
  const panel = () => find("#expansion-panel");
  const type = (field, text) => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const UNREACHABLE = "The studio could not be reached. Try again in a moment.";
  const seeds = new Map(); // the next seed of each idea: the first is the same in every tab
  let run = null; // { idea, text, abort }: what the panel shows

  // What is new in a prompt, word by word: the longest common subsequence stays unmarked.

  const bare = (word) => {
    const letters = word.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
    return letters === "an" ? "a" : letters;
  };
  const keptWords = (old, fresh) => {
    const rows = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1));
    for (let i = old.length - 1; i >= 0; i -= 1) {
      for (let j = fresh.length - 1; j >= 0; j -= 1) {
        rows[i][j] = old[i] === fresh[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
      }
    }
    const kept = new Set();
    for (let i = 0, j = 0; i < old.length && j < fresh.length;) {
      if (old[i] === fresh[j]) { kept.add(j); i += 1; j += 1; }
      else if (rows[i + 1][j] >= rows[i][j + 1]) i += 1;
      else j += 1;
    }
    return kept;
  };
  const marked = (idea, text) => {
    const words = text.split(/\s+/).filter(Boolean);
    const kept = keptWords(idea.split(/\s+/).filter(Boolean).map(bare), words.map(bare));
    const parts = [];
    words.forEach((word, at) => {
      const last = parts.at(-1);
      if (last && last.isKept === kept.has(at)) last.words.push(word);
      else parts.push({ isKept: kept.has(at), words: [word] });
    });
    return parts.flatMap(({ isKept, words: some }, at) => {
      const node = document.createElement(isKept ? "span" : "mark");
      node.textContent = some.join(" ");
      return at ? [" ", node] : [node];
    });
  };

  // The panel

  const say = (text) => { find(".expansion-said").textContent = text; };
  const show = (state, { idea = "", text = "", problem = "", attempt = 1 } = {}) => {
    const box = panel();
    box.dataset.state = state; // writing, done, failed
    box.hidden = false;
    find(".expansion-old p", box).textContent = idea;
    find(".expansion-new h2 span", box).textContent = attempt > 1 ? `Expanded, try ${attempt}` : "Expanded";
    const fresh = find(".expansion-new p", box);
    fresh.replaceChildren(...marked(idea, text));
    if (state === "writing") fresh.scrollIntoView({ block: "nearest" });
    const fault = find(".expansion-problem", box);
    fault.hidden = !problem;
    fault.textContent = problem;
    find(".expansion-pair", box).hidden = state === "failed" || state === "told";
    for (const button of all("[data-expand]", box)) button.hidden = !BUTTONS[state].includes(button.dataset.expand);
    followPrompt();
  };
  const BUTTONS = { writing: ["cancel"], done: ["accept", "again", "dismiss"], failed: ["again", "dismiss"], told: ["dismiss"] };

  const close = () => {
    run?.abort.abort();
    run = null;
    if (!panel() || panel().hidden) return;
    const hadFocus = panel().contains(document.activeElement);
    panel().hidden = true;
    say("");
    followPrompt();
    if (hadFocus) find(".expand")?.focus();
  };

  // A person who works by keyboard goes on with the button that matters now.
  const focusOn = (name) => {
    const at = document.activeElement;
    if (!at || at === document.body || at.closest("#expansion, #expand")) find(`#expansion [data-expand=${name}]`)?.focus({ preventScroll: true });
  };

  // The server's events

  const events = async function* (response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const frames = buffer.split("\n\n");
      buffer = frames.pop();
      for (const frame of frames) {
        const data = frame.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
  };
  const refusal = async (response) => {
    try { return (await response.json()).error.message; } catch { return UNREACHABLE; }
  };
  const ask = (idea, seed, signal) => {
    const { base, model } = panel().dataset;
    return fetch(`${base}v1/expansions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model, input: idea, seed, stream: true }),
      signal,
    });
  };

  const take = (mine, event) => {
    if (event.type === "expansion.progress") {
      show("writing", { idea: mine.idea, text: event.text, attempt: event.attempt });
    } else if (event.type === "expansion.completed") {
      mine.text = event.expansion.expanded_prompt;
      show("done", mine);
      say(`Expanded: ${mine.text}`);
      focusOn("accept");
    } else if (event.type === "error") {
      fail(mine, event.error.message);
    }
  };
  const fail = (mine, problem) => {
    mine.text = "";
    show("failed", { ...mine, problem });
    say(problem);
    focusOn("dismiss");
  };

  const start = async () => {
    run?.abort.abort();
    const idea = promptField().value;
    const seed = seeds.get(idea) || 0;
    seeds.set(idea, seed + 1);
    const mine = { idea, text: "", abort: new AbortController() };
    run = mine;
    show("writing", { idea });
    say("Writing.");
    focusOn("cancel");
    try {
      const response = await ask(idea, seed, mine.abort.signal);
      if (!response.ok) throw new Error(await refusal(response));
      for await (const event of events(response)) {
        if (run !== mine) return;
        take(mine, event);
      }
      if (run === mine && panel().dataset.state === "writing") fail(mine, UNREACHABLE);
    } catch (error) {
      if (run === mine && !mine.abort.signal.aborted) fail(mine, error instanceof TypeError ? UNREACHABLE : error.message);
    }
  };

  // The words before an accepted expansion: kept in a hidden field, for the request and for Undo.

  const accept = () => {
    if (!run?.text) return;
    const { idea, text } = run;
    if (promptField().value !== idea) { close(); return; }
    const { original, expanded } = kept(); // of an expansion that is expanded once more
    const words = original !== undefined && expanded.trim() === idea.trim() ? original : idea;
    type(find("#expanded textarea"), JSON.stringify({ original: words, expanded: text }));
    type(promptField(), text);
    close();
    followPrompt();
    say("The expanded prompt is in use.");
    find("#expanded-from button").focus({ preventScroll: true });
  };
  const undo = () => {
    const { original } = kept();
    if (original === undefined) return;
    type(find("#expanded textarea"), "");
    type(promptField(), original);
    followPrompt();
    say("Your own words are back.");
    find(".expand")?.focus({ preventScroll: true });
  };
  const kept = (text = find("#expanded textarea")?.value) => {
    try {
      const { original, expanded } = JSON.parse(text || "{}");
      return typeof original === "string" && typeof expanded === "string" ? { original, expanded } : {};
    } catch { return {}; }
  };
  // Whether a prompt is the expansion, or still is after an edit: as `studio/ui/original.py` has it.
  const longWords = (text) => new Set((text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => word.length > 3));
  const comesOf = (prompt, expanded) => {
    if (prompt.trim() === expanded.trim()) return true;
    const [words, there] = [longWords(expanded), longWords(prompt)];
    return words.size > 0 && 2 * [...words].filter((word) => there.has(word)).length >= words.size;
  };
  const followPrompt = (prompt = promptField()?.value ?? "", text = undefined) => {
    const line = find("#expanded-from");
    if (!line) return;
    const { original, expanded } = kept(text);
    const isExpansion = original !== undefined && Boolean(prompt.trim()) && prompt.trim() !== original.trim() && comesOf(prompt, expanded);
    line.hidden = !isExpansion || !panel().hidden;
    if (!isExpansion) return;
    find("q", line).textContent = original;
    find("i", line).hidden = expanded.trim() === prompt.trim();
  };
  window.studioExpanded = (prompt, text) => {
    followPrompt(prompt ?? "", text ?? "");
    // Chips, examples and settings change the prompt without a key: what the panel shows is of other
    // words then. Looked at a moment later, when the field has what this event tells.
    setTimeout(() => { if (run && promptField().value !== run.idea) close(); });
  };

  // What keeps the button from working is told no longer than that is so.
  const arrival = new MutationObserver(() => {
    if (!find(".expand[data-state=ready]")) return;
    arrival.disconnect();
    if (panel()?.dataset.state === "told") close();
  });
  const explain = (button) => {
    run?.abort.abort();
    run = null;
    arrival.observe(button.closest("#expand"), { childList: true, subtree: true });
    show("told", { problem: button.dataset.why });
    say(button.dataset.why);
    focusOn("dismiss");
  };

  const DO = { start, explain, accept, undo, again: start, dismiss: close, cancel: close };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-expand]");
    if (button) DO[button.dataset.expand]?.(button);
    // On a phone the panel lies over the picture; and what was asked for is made from the prompt.
    if (event.target.closest("#generate")) close();
  });
  document.addEventListener("input", (event) => {
    // A panel about words that stand there no more would replace the new ones.
    if (event.target === promptField() && event.isTrusted) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing || find("dialog[open]") || panel()?.hidden !== false) return;
    if (!event.target.closest?.("#dock") || event.target.closest("#world-tray")) return;
    event.preventDefault();
    close();
  });
  window.addEventListener("pagehide", () => run?.abort.abort());
})();
