/* The server's page: two models side by side, by the paths that any client has. What comes from the
   server is set as text, never as markup. */
"use strict";
(() => {
  const TOKEN = "kvfold-token";
  const MOST_EXCHANGES = 30;
  const TASK_FIELDS = {
    "lm": [["prompt", "Prompt", 4]],
    "seq-cls": [["text", "Text", 3], ["text_pair", "Second text, for models of pairs", 2]],
    "token-cls": [["tokens", "Text; it is split into words and signs", 3]],
    "qa": [["context", "Context", 5], ["question", "Question", 2]],
    "multiple-choice": [["text", "Text", 3], ["choices", "Choices, one a line", 4]],
  };
  const by = (id) => document.getElementById(id);
  const make = (parent, kind, look, text) => {
    const element = document.createElement(kind);
    if (look) element.className = look;
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  let models = [];
  let task = "lm";
  let running = null;
  let example = "";

  /* ---- the server ---- */

  const headers = () => {
    const token = sessionStorage.getItem(TOKEN);
    return token ? { Authorization: `Bearer ${token}` } : {};
  };
  const failure = async (response) => {
    const text = await response.text();
    try {
      return new Error(JSON.parse(text).error.message);
    } catch {
      return new Error(`${response.status} ${response.statusText}`);
    }
  };
  const get = async (path) => {
    const response = await fetch(path, { headers: headers(), cache: "no-store" });
    if (response.status === 401) throw Object.assign(new Error("token"), { token: true });
    if (!response.ok) throw await failure(response);
    return response.json();
  };
  const post = async (path, body, signal) => {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers() },
      body: JSON.stringify(body),
      signal,
    });
    if (!response.ok) throw await failure(response);
    return response;
  };

  /* Events of a stream (server-sent events), as objects. */
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines)
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }

  /* ---- models ---- */

  const short = (x) => (Number.isFinite(x) ? Number(x.toPrecision(4)).toString() : "");
  const FORMS = { text: "rows of text", pairs: "prompts with completions", chat: "chats" };
  const facts_of = (model) => {
    const f = model.facts;
    const rows = [
      ["method", f.method],
      ["task", f.task],
      ["bare base", f.prefix ? undefined : f.architecture],
      ["virtual tokens", f.prefix_length],
      ["trained on", f.examples === undefined ? undefined : `${f.examples} ${FORMS[f.row_form] ?? "rows"}`],
      ["steps", f.step],
      ["train loss", short(f.train_loss)],
      ["valid loss", short(f.valid_loss)],
      ["labels", f.labels && (f.labels.length > 6 ? `${f.labels.length}` : f.labels.join(", "))],
    ];
    return rows.filter(([, value]) => value !== undefined && value !== null && value !== "");
  };
  const show_facts = (side) => {
    const model = models.find((one) => one.id === by(side).value);
    const list = by(`${side}-facts`);
    list.replaceChildren();
    for (const [name, value] of model ? facts_of(model) : []) {
      const row = make(list, "div");
      make(row, "dt", "", name);
      make(row, "dd", "", String(value));
    }
  };
  const can = (model, what) => (model.facts.tasks ?? ["lm"]).some((one) => (what === "lm") === (one === "lm"));
  const classifies = (model) => (model.facts.tasks ?? []).find((one) => one !== "lm");

  const fill_select = (select, list, none) => {
    const before = select.value;
    select.replaceChildren();
    if (none) make(select, "option", "", "nothing").value = "";
    for (const model of list)
      make(select, "option", "", model.facts.prefix ? model.id : `${model.id} (bare base)`).value = model.id;
    if (list.some((model) => model.id === before)) select.value = before;
  };

  const fill_fields = () => {
    const box = by("fields");
    const before = Object.fromEntries([...box.querySelectorAll("textarea")].map((one) => [one.name, one.value]));
    box.replaceChildren();
    for (const [name, label, rows] of TASK_FIELDS[task]) {
      make(box, "label", "", label).htmlFor = `field-${name}`;
      const area = make(box, "textarea");
      area.id = `field-${name}`;
      area.name = name;
      area.rows = rows;
      area.value = before[name] ?? "";
    }
  };

  /* Begins in the form that the left model was trained on, with its example. */
  const begin_in_form = () => {
    const { row_form: form, example_prompt: prompt } = models.find((model) => model.id === by("left").value).facts;
    const area = by("field-prompt");
    if (form) by(form === "chat" ? "form-chat" : "form-text").checked = true;
    if (area && (!area.value || area.value === example)) area.value = example = prompt ?? "";
  };
  /* The right model answers what the left one does. */
  const fit_right = (first) => {
    const left = models.find((model) => model.id === by("left").value);
    task = by("tab-classify").getAttribute("aria-pressed") === "true" ? classifies(left) : "lm";
    const others = models.filter((model) => (task === "lm" ? can(model, "lm") : classifies(model) === task));
    fill_select(by("right"), others.filter((model) => model !== left), true);
    const bare = others.find((model) => !model.facts.prefix && model !== left);
    if (first) by("right").value = (bare ?? others.find((model) => model !== left))?.id ?? "";
    if (!by("field-" + TASK_FIELDS[task][0][0])) fill_fields();
    by("settings").hidden = task !== "lm";
    by("send").textContent = task === "lm" ? "Ask" : "Classify";
    by("choice").classList.toggle("one", others.length < 2);
    document.querySelector("[aria-label='Right model']").hidden = others.length < 2;
    show_facts("left");
    show_facts("right");
    begin_in_form();
  };
  const open_tab = (what) => {
    by("tab-write").setAttribute("aria-pressed", String(what === "lm"));
    by("tab-classify").setAttribute("aria-pressed", String(what !== "lm"));
    fill_select(by("left"), models.filter((model) => can(model, what)), false);
    fit_right(true);
  };

  const begin = async () => {
    let info;
    try {
      models = (await get("v1/models")).data;
      info = await get("tokenizer_info");
    } catch (error) {
      by("token-form").hidden = !error.token;
      by("work").hidden = true;
      if (error.token && sessionStorage.getItem(TOKEN)) {
        sessionStorage.removeItem(TOKEN);
        by("token-note").textContent = "That token was refused.";
      }
      by("about").textContent = error.token ? "" : `The server does not answer: ${error.message}`;
      if (error.token) by("token").focus();
      return;
    }
    const base = models.find((model) => !model.facts.prefix);
    const title = base?.id ?? "kvfold"; /* a key may have no right to the base */
    by("title").textContent = title;
    document.title = `${title} \u2013 kvfold`;
    const n = models.length - (base ? 1 : 0);
    by("about").textContent = n ? `${n} ${n === 1 ? "prefix" : "prefixes"} on this base. One question, two answers.`
      : "No prefix is served here, the base alone.";
    by("token-form").hidden = true;
    const writes = models.some((model) => can(model, "lm"));
    const labels = models.some((model) => can(model, "cls"));
    by("work").hidden = !writes && !labels;
    if (!writes && !labels) {
      by("about").textContent = "This base answers through heads alone, and no prefix with one is served.";
      return;
    }
    by("tabs").hidden = !writes || !labels;
    by(info.chat_template ? "form-chat" : "form-text").checked = true;
    by("keys").textContent = "Enter asks, Shift+Enter begins a line, Escape stops.";
    open_tab(writes ? "lm" : "cls");
    by("fields").querySelector("textarea").focus();
  };

  /* ---- answers ---- */

  const panel = (sides, name) => {
    const box = make(sides, "section", "panel answer waits");
    make(box, "h3", "", name);
    const body = make(box, "div");
    const said = make(box, "p", "said");
    return { box, body, said };
  };
  const rate = (tokens, seconds) =>
    tokens > 1 && seconds > 0 ? `, ${(((tokens - 1) / seconds)).toFixed(1)} tokens/s` : "";

  const write = async (name, values, at, signal) => {
    const text = make(at.body, "pre");
    const chat = by("form-chat").checked;
    const body = {
      model: name,
      temperature: Number(by("temperature").value),
      max_tokens: Math.max(1, Number(by("length").value) || 1),
      stream: true,
      stream_options: { include_usage: true },
    };
    if (chat) body.messages = [{ role: "user", content: values.prompt }];
    else body.prompt = values.prompt;
    const asked = performance.now();
    let first = 0;
    let last = asked;
    let usage;
    let reason = "";
    for await (const event of events(await post(chat ? "v1/chat/completions" : "v1/completions", body, signal))) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices[0];
      const more = choice && (chat ? choice.delta.content : choice.text);
      if (choice?.finish_reason) reason = choice.finish_reason;
      if (!more) continue;
      last = performance.now();
      first ||= last;
      text.textContent += more;
      at.said.textContent = `first token after ${((first - asked) / 1000).toFixed(2)} s`;
    }
    const tokens = usage?.completion_tokens ?? 0;
    at.said.textContent = `${usage?.prompt_tokens ?? 0} tokens in, ${tokens} out${rate(tokens, (last - first) / 1000)}` +
      `${first ? `, first after ${((first - asked) / 1000).toFixed(2)} s` : ""}${reason === "length" ? ", cut at the length" : ""}`;
  };

  /* Rows of a label and its probability, the likeliest first. */
  const bars = (parent, rows) => {
    const table = make(parent, "table", "bars");
    const sorted = [...rows].sort((a, b) => b[1] - a[1]);
    for (const [name, p] of sorted.slice(0, 12)) {
      const row = make(make(table, "tbody"), "tr", p === sorted[0][1] ? "best" : "");
      const cell = make(row, "th");
      cell.scope = "row";
      make(cell, "span", "bar").style.width = `calc(${p} * (100% - 0.4rem))`;
      cell.append(name);
      make(row, "td", "", `${(100 * p).toFixed(1)} %`);
    }
    if (sorted.length > 12) make(parent, "p", "note", `and ${sorted.length - 12} less likely ones`);
  };
  const show_answer = (at, answer, values) => {
    if (answer.prediction === null) make(at.body, "pre", "", "Too long: the model was trained to leave out such rows.");
    else if (Array.isArray(answer.prediction)) {
      const line = make(at.body, "p", "tagged");
      answer.prediction.forEach((tag, i) => {
        const word = make(line, "span", tag && tag !== "O" ? "in" : "", values.tokens[i]);
        word.title = `${tag}: ${(100 * answer.probabilities[i]).toFixed(1)} %`;
        if (tag && tag !== "O") make(word, "small", "", `${tag} ${(100 * answer.probabilities[i]).toFixed(0)} %`);
      });
    } else if (Array.isArray(answer.probabilities))
      bars(at.body, answer.probabilities.map((p, i) => [values.choices[i], p]));
    else if (answer.probabilities) bars(at.body, Object.entries(answer.probabilities));
    else if (answer.probability !== undefined) {
      make(at.body, "pre", "", answer.prediction || "no answer in the context");
      make(at.body, "p", "note", `probability ${(100 * answer.probability).toFixed(1)} %` +
        `${answer.start === undefined ? "" : `, from character ${answer.start}`}`);
    } else make(at.body, "pre", "", short(answer.prediction));
  };
  const classify = async (name, values, at, signal) => {
    const asked = performance.now();
    const reply = await (await post("v1/classify", { model: name, input: [values] }, signal)).json();
    show_answer(at, reply.data[0], values);
    at.said.textContent = `${reply.usage.prompt_tokens} tokens, ${(performance.now() - asked).toFixed(0)} ms`;
  };

  const read_fields = () => {
    const values = {};
    for (const area of by("fields").querySelectorAll("textarea")) {
      if (area.name === "tokens") values.tokens = area.value.match(/[\p{L}\p{N}\p{M}'\u2019-]+|[^\s]/gu) ?? [];
      else if (area.name === "choices") values.choices = area.value.split("\n").filter((line) => line.trim());
      else if (area.value.trim() || area.name !== "text_pair") values[area.name] = area.value;
    }
    return values;
  };
  const one_side = async (name, values, sides, signal) => {
    const at = panel(sides, name);
    try {
      await (task === "lm" ? write : classify)(name, values, at, signal);
    } catch (error) {
      at.said.textContent = error.name === "AbortError" ? `${at.said.textContent} (stopped)` : error.message;
      at.said.classList.toggle("bad", error.name !== "AbortError");
    }
    at.box.classList.remove("waits");
  };

  const ask = async () => {
    const first = by("fields").querySelector("textarea");
    if (!first.value.trim()) {
      first.focus();
      return;
    }
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const values = read_fields();
    const exchange = document.createElement("article");
    exchange.className = "exchange";
    make(exchange, "h2", "", [...by("fields").querySelectorAll("textarea")].map((one) => one.value).filter(Boolean).join("\n"));
    const names = [by("left").value, by("right").value].filter(Boolean);
    const sides = make(exchange, "div", names.length > 1 ? "sides" : "sides one");
    by("answers").prepend(exchange);
    if (exchange.getBoundingClientRect().top > innerHeight * 0.75) exchange.scrollIntoView();
    while (by("answers").children.length > MOST_EXCHANGES) by("answers").lastChild.remove();
    by("stop").disabled = false;
    by("answers").setAttribute("aria-busy", "true");
    await Promise.all(names.map((name) => one_side(name, values, sides, mine.signal)));
    if (running !== mine) return;
    running = null;
    by("stop").disabled = true;
    by("answers").setAttribute("aria-busy", "false");
  };

  /* ---- the reader ---- */

  by("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, by("token").value.trim());
    by("token").value = "";
    begin();
  });
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  by("stop").addEventListener("click", () => running?.abort());
  by("left").addEventListener("change", () => fit_right(false));
  by("right").addEventListener("change", () => show_facts("right"));
  by("tab-write").addEventListener("click", () => open_tab("lm"));
  by("tab-classify").addEventListener("click", () => open_tab("cls"));
  by("temperature").addEventListener("input", () => {
    by("temperature-is").value = Number(by("temperature").value).toFixed(1);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target.tagName !== "TEXTAREA") return;
    event.preventDefault();
    ask();
  });
  begin();
})();
