"use strict";
// Adds to a page that is whole without it: theme, toggles, sorting, reading off charts, records, downloads.
(() => {
  const root = document.documentElement;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const records = JSON.parse(document.getElementById("all-records").textContent);
  const figures = JSON.parse(document.getElementById("all-figures").textContent);
  const make = (tag, text = "", name = "") => {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = name;
    return element;
  };

  // Theme: as the system says, or as the reader does; kept where the browser allows it.
  const themes = { "": "as the system", light: "light", dark: "dark" };
  const themeButton = document.querySelector(".theme");
  const setTheme = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    themeButton.textContent = `Theme: ${themes[theme]}`;
  };
  let theme = "";
  try { theme = localStorage.getItem("triune-theme") || ""; } catch { /* no storage: as the system says */ }
  setTheme(theme in themes ? theme : "");
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const order = Object.keys(themes);
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
    setTheme(next);
    try { localStorage.setItem("triune-theme", next); } catch { /* it holds until the page is closed */ }
  });

  // Contents fold away where they would push the answer down.
  if (matchMedia("(max-width: 70rem)").matches) document.querySelector(".contents details").open = false;

  // One set of toggles for all charts.
  document.querySelector(".toggles").hidden = false;
  all("[data-toggle]").forEach((box) => box.addEventListener("change", () => {
    const number = box.dataset.toggle;
    all(`[data-series="${number}"], [data-legend="${number}"]`).forEach((one) => one.classList.toggle("off", !box.checked));
  }));

  // Sorting: up, down, as it was. What holds no figure stays at the end.
  const figureIn = (text) => {
    const found = text.replaceAll("−", "-").replace(/(\d),(?=\d{3})/g, "$1").match(/^[^\d+-]{0,3}([+-]?\d*\.?\d+(?:e[+-]?\d+)?)/i);
    return found ? Number(found[1]) : null;
  };
  const isNothing = (text) => text === "" || text === "–";
  all("table").forEach((table) => {
    const body = table.tBodies[0]; // means and the paper's rows are in a second one and stay at the end
    const before = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
        heads.forEach((one) => one.setAttribute("aria-sort", one === head ? next : "none"));
        const texts = new Map(before.map((row) => [row, row.cells[column].textContent.trim()]));
        const numeric = [...texts.values()].every((text) => isNothing(text) || figureIn(text) !== null);
        const compare = (one, other) => {
          const [a, b] = [texts.get(one), texts.get(other)];
          if (isNothing(a) || isNothing(b)) return isNothing(a) - isNothing(b);
          const order = numeric ? figureIn(a) - figureIn(b) : a.localeCompare(b, "en", { numeric: true });
          return next === "descending" ? -order : order;
        };
        body.append(...(next === "none" ? before : [...before].sort(compare)));
      });
    });
  });

  // Charts: the nearest point of every line that is shown, by pointer, touch or arrow keys.
  all(".plot").forEach((plot) => {
    const chart = plot.querySelector("svg");
    const guide = chart.querySelector(".guide");
    const readout = plot.querySelector(".readout");
    const series = all("[data-points]", chart).map((group) => ({ group, points: JSON.parse(group.dataset.points) }));
    let at = null;
    const places = () => [...new Set(shown().flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
    const shown = () => series.filter((one) => !one.group.classList.contains("off"));
    const hide = () => { readout.hidden = true; guide.classList.remove("on"); at = null; };
    const show = (place) => {
      at = place;
      const lines = shown().flatMap((one) => {
        const point = one.points.find((candidate) => Math.abs(candidate[0] - place) < 1.5);
        return point ? [{ one, point }] : [];
      });
      if (!lines.length) return hide();
      readout.replaceChildren(make("div", lines[0].point[2]), ...lines.map(({ one, point }) => {
        const line = make("div", "", [...one.group.classList].find((name) => /^s\d+$/.test(name)));
        line.append(make("span", "", "swatch"), make("span", one.group.dataset.name), make("b", point[3]));
        return line;
      }));
      guide.setAttribute("x1", place);
      guide.setAttribute("x2", place);
      guide.classList.add("on");
      readout.hidden = false;
      const scale = chart.clientWidth / chart.viewBox.baseVal.width;
      const room = plot.clientWidth - readout.offsetWidth;
      const left = place * scale + 12 > room ? place * scale - readout.offsetWidth - 12 : place * scale + 12;
      readout.style.left = `${Math.max(0, Math.min(room, left))}px`;
      readout.style.top = "1.6rem";
    };
    const nearest = (event) => {
      const scale = chart.clientWidth / chart.viewBox.baseVal.width;
      const x = (event.clientX - chart.getBoundingClientRect().left) / scale;
      const found = places().reduce((best, one) => (best === null || Math.abs(one - x) < Math.abs(best - x) ? one : best), null);
      if (found !== null) show(found);
    };
    plot.addEventListener("pointermove", nearest);
    plot.addEventListener("pointerdown", nearest);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const order = places();
      if (!order.length) return;
      const now = order.indexOf(at);
      show(order[now < 0 ? (step > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, now + step))]);
    });
  });

  // Records are written out when they are opened; a figure opens all that are behind it.
  let cameFrom = null;
  const fill = (record) => {
    if (record.querySelector("pre")) return;
    record.append(make("pre", JSON.stringify(records[Number(record.dataset.record)], null, 2)));
  };
  document.addEventListener("toggle", (event) => {
    if (event.target.matches("details.record") && event.target.open) fill(event.target);
  }, true);
  const openRecords = (numbers) => {
    all("details.record.found").forEach((one) => { one.classList.remove("found"); one.open = false; });
    all(".back").forEach((one) => one.remove());
    const opened = numbers.map((number) => document.getElementById(`record-${number}`)).filter(Boolean);
    opened.forEach((record) => {
      record.closest("details.group").open = true;
      record.open = true;
      fill(record);
      record.classList.add("found");
    });
    if (!opened.length) return;
    if (cameFrom) {
      const back = make("button", "Back to the figure", "back");
      back.type = "button";
      back.addEventListener("click", () => { cameFrom.focus({ preventScroll: true }); cameFrom.scrollIntoView({ block: "center", behavior: "instant" }); });
      opened[0].querySelector("summary").after(back);
    }
    opened[0].scrollIntoView({ block: "start", behavior: "instant" });
    opened[0].querySelector("summary").focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-records]");
    if (!link) return;
    event.preventDefault();
    cameFrom = link;
    history.pushState(null, "", link.getAttribute("href"));
    openRecords(link.dataset.records.split(" "));
  });
  const openNamed = () => {
    const named = /^#record-(\d+)$/.exec(location.hash);
    if (named) openRecords([named[1]]);
  };
  addEventListener("hashchange", openNamed);
  openNamed();

  // Downloads are made here, from what the page holds.
  document.querySelector(".downloads").hidden = false;
  all("[data-download]").forEach((button) => button.addEventListener("click", () => {
    const name = button.dataset.download;
    const isJson = name.endsWith(".json");
    const text = isJson ? JSON.stringify({ records }, null, 1) : figures;
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type: isJson ? "application/json" : "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }));

  // Paper has no folds: what is folded is opened to be printed, and closed again.
  const closed = [];
  addEventListener("beforeprint", () => {
    const folded = all("details.folded:not([open])");
    folded.forEach((one) => { one.open = true; });
    closed.push(...folded);
  });
  addEventListener("afterprint", () => closed.splice(0).forEach((one) => { one.open = false; }));
})();
