// What the page does in the browser alone. Everything that makes, stops or keeps a picture goes over
// the server; HTML fragments name an action in `data-do`, and one listener here carries it out.
(() => {
  "use strict";
  const NAME = "Flux Studio";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const tell = (event, data) => window.studioTell?.(event, data);

  // Dark is the default; the choice stays in this browser.
  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("flux-studio-theme", theme); } catch { /* private window */ }
  };
  let theme = "dark";
  try { theme = localStorage.getItem("flux-studio-theme") || "dark"; } catch { /* private window */ }
  document.documentElement.dataset.theme = theme;

  const type = (field, text) => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no clipboard on plain http
      const area = Object.assign(document.createElement("textarea"), { value: text });
      (find("dialog[open]") || document.body).append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  // Files become the pictures by way of the upload button, like chosen ones.
  const takeFiles = (files) => {
    const input = find("#source input[type=file]");
    if (!files.length || !input) return;
    const transfer = new DataTransfer();
    for (const file of input.multiple ? files : files.slice(0, 1)) transfer.items.add(file);
    input.files = transfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  };

  // The large view

  const SHOWN = [
    ["seed", "Seed"], ["steps", "Steps"], ["step_cache", "Step cache"], ["guidance_scale", "Guidance"],
    ["strength", "Strength"], ["negative_prompt", "Avoid"], ["original_prompt", "Your words"],
    ["model", "Model"],
  ];
  let viewed = null; // the `.shot` that the large view shows

  const dialog = (id, label) => {
    const element = document.createElement("dialog");
    element.id = id;
    element.setAttribute("aria-label", label);
    element.addEventListener("click", (event) => event.target === element && element.close());
    document.body.append(element);
    return element;
  };

  const action = (text, name, kind = "") => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    button.dataset.view = name;
    button.className = kind;
    return button;
  };

  const buildView = () => {
    const view = dialog("view", "Large view");
    const image = Object.assign(document.createElement("img"), { alt: "" });
    const stage = document.createElement("div");
    stage.className = "view-stage";
    const back = action("‹", "previous", "turn");
    const next = action("›", "next", "turn");
    back.setAttribute("aria-label", "Newer picture");
    next.setAttribute("aria-label", "Older picture");
    stage.append(back, image, next);
    const side = document.createElement("div");
    side.className = "view-side";
    const close = action("×", "close", "close");
    close.setAttribute("aria-label", "Close");
    const download = Object.assign(document.createElement("a"), { textContent: "Download", className: "main" });
    const buttons = document.createElement("div");
    buttons.className = "view-buttons";
    buttons.append(
      download, action("Use these settings", "use", "wide"), action("Use as source", "source"),
      action("Copy settings", "copy"), action("Delete", "delete", "wide danger"),
    );
    side.append(close, document.createElement("p"), document.createElement("dl"), buttons);
    view.append(stage, side);
    view.addEventListener("click", onView);
    view.addEventListener("close", () => { viewed = null; });
    return view;
  };

  const show = (shot) => {
    const view = find("#view") || buildView();
    const settings = { ...JSON.parse(shot.dataset.settings), step_cache: shot.dataset.cache };
    viewed = shot;
    Object.assign(find("img", view), { src: shot.dataset.content, alt: settings.prompt });
    Object.assign(find("a", view), { href: shot.dataset.content, download: shot.dataset.name });
    find("p", view).textContent = settings.prompt;
    find("dl", view).replaceChildren(
      ...fact("Size", `${settings.width} × ${settings.height} px`),
      ...SHOWN.filter(([key]) => settings[key] !== undefined).flatMap(([key, label]) => fact(label, settings[key])),
      ...fact("File", settings.output_format.toUpperCase()),
    );
    find("[data-view=delete]", view).textContent = "Delete";
    const shots = neighbours(shot);
    find("[data-view=previous]", view).disabled = shots.indexOf(shot) <= 0;
    find("[data-view=next]", view).disabled = shots.indexOf(shot) === shots.length - 1;
    if (!view.open) view.showModal();
  };

  const fact = (label, value) => {
    const term = Object.assign(document.createElement("dt"), { textContent: label });
    const text = Object.assign(document.createElement("dd"), { textContent: String(value) });
    return [term, text];
  };

  // Arrows move within the place the picture was opened from: the results or the strip.
  const neighbours = (shot) => {
    const place = shot.closest(".grid, .strip");
    return place ? all(".shot[data-picture]:not([hidden])", place) : [];
  };
  const turn = (by) => {
    const shots = neighbours(viewed);
    const next = shots[shots.indexOf(viewed) + by];
    if (next) show(next);
  };

  const onView = async (event) => {
    const button = event.target.closest("[data-view]");
    if (!button || !viewed) return;
    const { picture, content, name } = viewed.dataset;
    const run = {
      close: () => find("#view").close(),
      previous: () => turn(-1),
      next: () => turn(1),
      use: () => { tell("select", { id: picture }); find("#view").close(); },
      copy: async () => {
        await copy(JSON.stringify(JSON.parse(viewed.dataset.settings), null, 2));
        flash(button, "Copied");
      },
      source: async () => {
        const blob = await (await fetch(content)).blob();
        find("#view").close();
        takeFiles([new File([blob], name, { type: blob.type })]);
      },
      delete: () => removePicture(button, picture),
    };
    await run[button.dataset.view]?.();
  };

  const removePicture = (button, picture) => {
    if (button.textContent === "Delete") {
      button.textContent = "Delete for good?";
      return;
    }
    const shots = neighbours(viewed);
    const at = shots.indexOf(viewed);
    const next = shots[at + 1] || shots[at - 1];
    tell("delete", { id: picture });
    // Hidden, not removed: Gradio compares its fragments with the page node by node.
    all(`.shot[data-picture="${CSS.escape(picture)}"]`).forEach((shot) => { shot.hidden = true; });
    if (next) show(next); else find("#view").close();
  };

  const flash = (button, text) => {
    const before = button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = before; }, 1200);
  };

  // The keyboard sheet

  const KEYS = [
    ["Ctrl or ⌘ + Enter", "Generate"], ["/", "Write the prompt"], ["← →", "Turn pictures in the large view"],
    ["Esc", "Close"], ["?", "This sheet"],
  ];
  const showHelp = () => {
    let help = find("#help");
    if (!help) {
      help = dialog("help", "Keyboard shortcuts");
      const title = Object.assign(document.createElement("h2"), { textContent: "Keyboard" });
      const list = document.createElement("dl");
      list.append(...KEYS.flatMap(([key, text]) => fact(key, text)));
      const close = action("Close", "close");
      close.addEventListener("click", () => help.close());
      help.append(title, list, close);
    }
    help.showModal();
  };

  // Events

  const DO = {
    help: showHelp,
    theme: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    more: () => tell("submit", {}),
    example: (button) => {
      const prompt = find("#prompt textarea");
      type(prompt, button.textContent);
      prompt.focus();
    },
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) DO[button.dataset.do]?.(button);
    const shot = event.target.closest(".shot[data-picture]");
    if (shot) show(shot);
    // On a phone the controls are below the picture: go up to watch it.
    if (event.target.closest("#generate") && matchMedia("(max-width: 860px)").matches) scrollTo({ top: 0 });
  });

  const isTyping = (element) => Boolean(element?.closest("input:not([type=radio]), textarea, [contenteditable]"));
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229) return; // an input method is at work
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!find("dialog[open]")) find("#generate")?.click();
    } else if (viewed && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      event.preventDefault();
      turn(event.key === "ArrowLeft" ? -1 : 1);
    } else if (isTyping(event.target) || find("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "?") {
      showHelp();
    } else if (event.key === "/") {
      event.preventDefault();
      find("#prompt textarea")?.focus();
    }
  }, true);

  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files || [])].filter((item) => item.type.startsWith("image/"));
    if (!files.length) return;
    event.preventDefault();
    takeFiles(files);
  });
  let dragged = 0; // enter and leave also fire for every child
  const drag = (by) => {
    dragged = Math.max(0, dragged + by);
    document.documentElement.classList.toggle("dropping", dragged > 0);
  };
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragenter", (event) => hasFiles(event) && drag(1));
  document.addEventListener("dragleave", (event) => hasFiles(event) && drag(-1));
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    drag(-dragged);
    takeFiles([...event.dataTransfer.files]);
  }, true);

  // The tab's title tells of a job to somebody who is elsewhere; a refused field is marked.

  const FIELDS = { prompt: "#prompt", seed: "#seed", width: "#custom-size", height: "#custom-size", source: "#source" };
  let wasBusy = false;
  const observe = () => {
    const progress = find("#stage .progress");
    const isDone = !progress && find("#stage .grid[data-state=done]");
    if (progress) document.title = `${progress.dataset.share} % · ${NAME}`;
    else if (wasBusy && isDone && document.hidden) document.title = `✓ Done · ${NAME}`;
    else if (wasBusy || !document.hidden) document.title = NAME;
    wasBusy = Boolean(progress);
    const param = find("#problem [data-param]")?.dataset.param;
    all(".refused").forEach((field) => field.classList.remove("refused"));
    if (param && FIELDS[param]) find(FIELDS[param])?.classList.add("refused");
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !wasBusy) document.title = NAME;
  });
  let isQueued = false;
  const watcher = new MutationObserver(() => {
    if (isQueued) return;
    isQueued = true;
    requestAnimationFrame(() => { isQueued = false; });
    observe();
  });
  const start = () => {
    const stage = find("#stage");
    if (!stage) return setTimeout(start, 100);
    watcher.observe(stage, { subtree: true, childList: true, attributes: true });
    const problem = find("#problem");
    if (problem) watcher.observe(problem, { subtree: true, childList: true, attributes: true, characterData: true });
    return observe();
  };
  start();
})();
