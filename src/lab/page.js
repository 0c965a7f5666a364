/* Values under the pointer, or under the arrow keys: of the nearest step of a chart, of a cell of a
   heat map. The page is whole without this. Numbers are those of the tables beside the pictures;
   what is shown is set as text, never as markup. */
"use strict";
(() => {
  const make = (parent, kind, look) => {
    const element = document.createElement(kind);
    element.className = look;
    parent.append(element);
    return element;
  };
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  /* A text beside the point (left, top) of `box`, on the side that has room for it. */
  const place = (box, tip, left, top) => {
    const right = left + 14 + tip.offsetWidth <= box.clientWidth;
    const most = box.clientWidth - tip.offsetWidth;
    const x = right ? left + 14 : left - 14 - tip.offsetWidth;
    tip.style.left = `${x >= 0 ? x : clamp(left - tip.offsetWidth / 2, 0, Math.max(most, 0))}px`;
    tip.style.top = `${clamp(top - tip.offsetHeight / 2, 0, Math.max(box.clientHeight - tip.offsetHeight, 0))}px`;
  };
  const fill = (tip, title, lines) => {
    tip.replaceChildren();
    make(tip, "div", "").textContent = title;
    for (const [name, value] of lines) {
      const line = make(tip, "div", "");
      line.textContent = `${name} `;
      make(line, "b", "").textContent = value;
    }
  };

  /* Pointer and keys on an element: to(event) for a place, by(dx, dy) for a key, off() at the end. */
  const listen = (element, to, by, off) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    element.addEventListener("pointermove", to);
    element.addEventListener("pointerdown", to);
    /* A finger that is lifted leaves its text behind, until it touches something else. */
    element.addEventListener("pointerleave", (event) => event.pointerType === "touch" || off());
    document.addEventListener("pointerdown", (event) => element.contains(event.target) || off());
    element.addEventListener("blur", off);
    element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") off();
      if (!moves[event.key]) return;
      event.preventDefault();
      by(...moves[event.key]);
    });
  };

  /* Columns of a table by their data-key: {step: [1, 2, ...], ...}; an empty cell is NaN. */
  const columns = (table) => {
    const keys = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.key);
    const out = Object.fromEntries(keys.map((key) => [key, []]));
    for (const row of table.tBodies[0].rows)
      keys.forEach((key, i) => {
        const text = row.cells[i].textContent;
        out[key].push(text === "" ? NaN : Number(text));
      });
    return out;
  };
  const nearest = (sorted, x) => {
    let low = 0;
    let high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= x) low = middle;
      else high = middle;
    }
    return x - sorted[low] <= sorted[high] - x ? low : high;
  };

  const table = document.getElementById("steps");
  const data = table && columns(table);

  const chart = (figure) => {
    const plot = figure.querySelector(".plot");
    const from = Number(plot.dataset.from);
    const to = Number(plot.dataset.to);
    const series = [...figure.querySelectorAll(".legend li")].map((item) => ({
      name: item.textContent,
      look: item.className,
      values: data[item.dataset.column],
    }));
    /* Steps at which any of them has a value: a validation is not at every step. */
    const where = data.step.map((_, i) => i).filter((i) => series.some((one) => !Number.isNaN(one.values[i])));
    const steps_at = where.map((i) => data.step[i]);
    let added = [];
    let at = -1;
    const off = () => {
      for (const element of added) element.remove();
      added = [];
    };
    const view = () => [...plot.querySelectorAll(".view")].find((one) => one.offsetWidth > 0);
    const height = (v, y) => {
      const low = Number(v.dataset.low);
      const high = Number(v.dataset.high);
      return v.classList.contains("log") ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
    };
    const show = (index) => {
      const v = view();
      at = clamp(index, 0, where.length - 1);
      off();
      const left = (100 * (steps_at[at] - from)) / (to - from);
      const cross = make(v, "div", "cross");
      const tip = make(v, "div", "tip");
      cross.style.left = `${left}%`;
      added = [cross, tip];
      const lines = [];
      for (const one of series) {
        const y = one.values[where[at]];
        if (Number.isNaN(y)) continue;
        lines.push([one.name, String(y)]);
        if (v.classList.contains("log") && y <= 0) continue;
        const dot = make(v, "div", `dot ${one.look}`);
        dot.style.left = `${left}%`;
        dot.style.bottom = `${100 * height(v, y)}%`;
        added.push(dot);
      }
      fill(tip, `step ${steps_at[at]}`, lines);
      place(v, tip, (left / 100) * v.clientWidth, v.clientHeight / 3);
    };
    const point = (event) => {
      const box = view().getBoundingClientRect();
      const x = clamp((event.clientX - box.left) / box.width, 0, 1);
      show(nearest(steps_at, from + x * (to - from)));
    };
    listen(plot, point, (dx) => show(at < 0 && dx < 0 ? where.length - 1 : at + dx), off);
  };

  const heat = (figure) => {
    const field = figure.querySelector(".field");
    const rows = document.getElementById(figure.dataset.table).tBodies[0].rows;
    const across = rows[0].cells.length - 1;
    let added = [];
    let row = 0;
    let column = 0;
    const off = () => {
      for (const element of added) element.remove();
      added = [];
    };
    const show = (r, c) => {
      row = clamp(r, 0, rows.length - 1);
      column = clamp(c, 0, across - 1);
      off();
      const frame = make(field, "div", "frame");
      const tip = make(field, "div", "tip");
      added = [frame, tip];
      frame.style.left = `${(100 * column) / across}%`;
      frame.style.top = `${(100 * row) / rows.length}%`;
      frame.style.width = `${100 / across}%`;
      frame.style.height = `${100 / rows.length}%`;
      fill(tip, `${figure.dataset.row} ${row}, ${figure.dataset.column} ${column}`,
        [["", rows[row].cells[column + 1].textContent]]);
      place(field, tip, ((column + 0.5) / across) * field.clientWidth, ((row + 0.5) / rows.length) * field.clientHeight);
    };
    const point = (event) => {
      const box = field.getBoundingClientRect();
      show(Math.floor(((event.clientY - box.top) / box.height) * rows.length),
        Math.floor(((event.clientX - box.left) / box.width) * across));
    };
    listen(field, point, (dx, dy) => show(added.length ? row + dy : row, added.length ? column + dx : column), off);
  };

  /* A link opens what its target is folded into. */
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (!folded || folded.open) return;
    folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  if (data) document.querySelectorAll(".chart").forEach(chart);
  document.querySelectorAll(".heat").forEach(heat);
})();
