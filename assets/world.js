// The tray of words that the model knows, and what a click on one does to the prompt.
(() => {
  "use strict";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // What stands in a prompt, told by the forms of the tray's words

  const either = (forms) =>
    [...new Set(forms)].sort((a, b) => b.length - a.length)
      .map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|") || "(?!)";
  const whole = (pattern, after = "") => `(?<![\\w-])(?:${pattern})(?![\\w-])${after}`;

  const grammarOf = (words, styles) => {
    const forms = (...kinds) =>
      either(words.filter(({ kind }) => kinds.includes(kind)).flatMap((word) => word.forms));
    const things = either(words.flatMap((word) => (word.kind === "thing" ? [...word.forms, word.plural || word.text] : [])));
    const number = `an?|the|one|${forms("count")}`;
    const adjectives = `${forms("colour", "size")}|${either(styles)}`;
    const before = `(?:(${number})\\s+)?((?:(?:${adjectives})\\s+)*)`;
    return {
      named: new RegExp(whole(`${before}(${things})`), "gi"),
      begun: new RegExp(`(?<![\\w-])${before}$`, "i"), // tried on the text before the cursor and a space
      count: new RegExp(`^(?:${forms("count")})$`, "i"),
      colour: new RegExp(`^(?:${forms("colour")})$`, "i"),
      size: new RegExp(`^(?:${forms("size")})$`, "i"),
      relation: new RegExp(`${whole(forms("relation"))}\\s*$`, "i"),
      between: new RegExp(`^\\s*${whole(forms("relation"))}\\s*$`, "i"),
      background: new RegExp(whole(forms("background")), "i"),
      place: new RegExp(whole(forms("place"), "(?! of\\b)"), "i"), // not "to the left of"
      thingOf: (noun) => words.find((word) => word.kind === "thing" && word.text === noun.toLowerCase()),
    };
  };

  const nameAt = (match, start) => ({
    start,
    end: start + match[0].length,
    number: match[1] || "",
    adjectives: match[2].split(/\s+/).filter(Boolean),
    noun: match[3] || "",
  });
  const namesIn = (text, grammar) =>
    [...text.matchAll(grammar.named)].map((match) => nameAt(match, match.index));

  // "a small red |": a name whose thing is still to come.
  const begunAt = (text, caret, grammar) => {
    const left = text.slice(0, caret).trimEnd();
    const match = grammar.begun.exec(`${left} `);
    return match?.[0].trim() ? { ...nameAt(match, match.index), end: left.length } : null;
  };

  const written = ({ number, adjectives, noun }) => {
    const rest = [...adjectives, noun].filter(Boolean).join(" ");
    const article = /^(?!uni)[aeiou]/i.test(rest) ? "an" : "a";
    const first = /^an?$/.test(number) ? article : /^an?$/i.test(number) ? article.replace("a", "A") : number;
    return [first, rest].filter(Boolean).join(" ");
  };

  // Everything below gives the new text and the cursor in it, behind what was written.

  const put = (text, start, end, piece) => {
    const left = text.slice(0, start).trimEnd();
    const right = text.slice(end).trimStart();
    const head = (left ? `${left} ` : "") + piece;
    return { text: head + (!right || /^[,.;:!?]/.test(right) ? right : ` ${right}`), caret: head.length };
  };
  const putName = (text, name, changes) => put(text, name.start, name.end, written({ ...name, ...changes }));
  const putNew = (text, at, name) => putName(text, { start: at, end: at, adjectives: [], noun: "", number: "", ...name });
  const endOf = (text) => text.replace(/[\s.,;:!?]+$/, "").length;
  const found = (text, pattern) => {
    const match = pattern.exec(text);
    return match && { start: match.index, end: match.index + match[0].length };
  };

  const addThing = (text, caret, word, grammar) => {
    const begun = begunAt(text, caret, grammar);
    if (begun) {
      const noun = grammar.count.test(begun.number) && word.plural ? word.plural : word.text;
      return putName(text, begun, { noun, ...(/^an?$/i.test(begun.number) && !word.article ? { number: "" } : {}) });
    }
    const name = { number: word.article, noun: word.text };
    const left = text.slice(0, caret).trimEnd();
    if (grammar.relation.test(left) || /[,;:]$/.test(left)) return putNew(text, caret, name);
    const last = namesIn(text, grammar).at(-1);
    if (last) return put(text, last.end, last.end, `and ${written({ adjectives: [], ...name })}`);
    const scene = [found(text, grammar.place), found(text, grammar.background)].filter(Boolean);
    return putNew(text, scene.length ? Math.min(...scene.map(({ start }) => start)) : caret, name);
  };

  // The name that an adjective or a number is about: the one at the cursor, else the last before it.
  const nameFor = (text, caret, grammar) => {
    const names = namesIn(text, grammar);
    const inside = names.find(({ start, end }) => start < caret && caret < end);
    return inside || begunAt(text, caret, grammar) || names.findLast(({ start }) => start < caret) || names[0];
  };

  const addAdjective = (text, caret, word, grammar) => {
    const name = nameFor(text, caret, grammar);
    if (!name) return putNew(text, caret, { number: "a", adjectives: [word.text] });
    const others = name.adjectives.filter((adjective) => !grammar[word.kind].test(adjective));
    return putName(text, name, { adjectives: word.kind === "size" ? [word.text, ...others] : [...others, word.text] });
  };

  const addCount = (text, caret, word, grammar) => {
    const name = nameFor(text, caret, grammar);
    if (!name) return putNew(text, caret, { number: word.text });
    return putName(text, name, { number: word.text, noun: grammar.thingOf(name.noun)?.plural || name.noun });
  };

  const addRelation = (text, caret, word, grammar) => {
    const before = found(text.slice(0, caret), grammar.relation);
    if (before) return put(text, before.start, before.end, word.text);
    const [a, b] = namesIn(text, grammar).slice(-2);
    if (b && grammar.between.test(text.slice(a.end, b.start))) return put(text, a.end, b.start, word.text);
    const at = (b || a)?.end ?? caret;
    return put(text, at, at, word.text);
  };

  const addBackground = (text, caret, word, grammar) => {
    const old = found(text, grammar.background) || { start: endOf(text), end: text.length };
    return put(text, old.start, old.end, word.text);
  };

  const addPlace = (text, caret, word, grammar) => {
    const at = namesIn(text, grammar).at(-1)?.end ?? found(text, grammar.background)?.start ?? endOf(text);
    const old = found(text, grammar.place) || { start: at, end: at };
    return put(text, old.start, old.end, word.text);
  };

  const ADD = {
    thing: addThing, colour: addAdjective, size: addAdjective, count: addCount,
    relation: addRelation, background: addBackground, place: addPlace,
  };

  // The tray

  const wordOf = ({ dataset }) => ({
    kind: dataset.kind, text: dataset.text, forms: JSON.parse(dataset.forms),
    plural: dataset.plural || "", article: dataset.article || "",
  });
  let grammar = null; // of this page's words, which never change

  const write = (chip) => {
    const styles = JSON.parse(find("#world-tray").dataset.styles);
    grammar ??= grammarOf(all("#world-tray .word").map(wordOf), styles);
    const prompt = find("#prompt textarea");
    const word = wordOf(chip);
    const { text, caret } = ADD[word.kind](prompt.value, prompt.selectionEnd, word, grammar);
    prompt.value = text;
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
    prompt.setSelectionRange(caret, caret); // without focus, which would open a phone's keyboard
    find(".world-said").textContent = text;
  };

  const open = (isOpen) => {
    find(".world-toggle")?.setAttribute("aria-expanded", isOpen);
    find("#world-tray")?.toggleAttribute("hidden", !isOpen);
  };

  const isMatch = (chip, query) =>
    chip.textContent.toLowerCase().includes(query) || chip.dataset.forms.toLowerCase().includes(query);
  const filter = () => {
    const tray = find("#world-tray");
    const query = find("input[type=search]", tray).value.trim().toLowerCase();
    const group = find("input[type=radio]:checked", tray).value;
    tray.classList.toggle("searching", Boolean(query));
    all(".word", tray).forEach((chip) => { chip.hidden = !isMatch(chip, query); });
    all(".world-list", tray).forEach((list) => {
      list.hidden = query ? !find(".word:not([hidden])", list) : list.dataset.group !== group;
    });
    find(".world-none", tray).hidden = Boolean(find(".word:not([hidden])", tray));
  };

  // From chip to chip with the arrows; from the search with Enter straight into the prompt.
  const shown = () => all(".world-list:not([hidden]) .word:not([hidden])");
  const step = (chip, by) => {
    const chips = shown();
    chips[chips.indexOf(chip) + by]?.focus();
  };
  const best = (query) => query && (
    shown().find((chip) => wordOf(chip).forms.includes(query)) // "car" before "carrot"
    || shown().find((chip) => chip.textContent.startsWith(query)) || shown()[0]
  );
  const onKey = (event) => {
    const { target, key } = event;
    const isSearch = target.matches("input[type=search]");
    if (key === "Escape" && isSearch && target.value) {
      event.preventDefault();
      target.value = "";
      filter();
    } else if (key === "Escape") {
      open(false);
      find(".world-toggle").focus();
    } else if (key === "Enter" && isSearch && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      const chip = best(target.value.trim().toLowerCase());
      if (chip) write(chip);
    } else if (target.matches(".word") && (key === "ArrowRight" || key === "ArrowLeft")) {
      event.preventDefault();
      step(target, key === "ArrowRight" ? 1 : -1);
    }
  };

  document.addEventListener("click", (event) => {
    const toggle = event.target.closest(".world-toggle");
    if (toggle) open(toggle.getAttribute("aria-expanded") !== "true");
    const chip = event.target.closest("#world-tray .word");
    if (chip) write(chip);
    // On a phone the tray lies over the picture.
    if (event.target.closest("#generate") && matchMedia("(max-width: 860px)").matches) open(false);
  });
  document.addEventListener("input", (event) => event.target.closest("#world-tray") && filter());
  document.addEventListener("keydown", (event) => event.target.closest?.("#world-tray, .world-toggle") && onKey(event));
})();
