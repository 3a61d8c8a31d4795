// The rest of the sections: the best network's layers, where the time went, and how the run was made.

function layersSection(content) {
  const { layers } = content;
  if (!layers.length || (content.kind === "bench" && !content.best.length)) return null;
  const what = chosen.layer === "params" ? "params" : "macs";
  const heavy = layers.filter((layer) => layer[what]);
  const label = what === "params" ? "parameters" : "multiply-accumulates";
  const values = Float64Array.from(heavy, (layer) => layer[what]);
  const places = heavy.map((_, k) => k);
  const total = values.reduce((sum, value) => sum + value, 0);
  const most = heavy[values.indexOf(Math.max(...values))];
  const caption = most ? `${heavy.length} of ${plural(layers.length, "layer")} have ${label}; together ${short(total)} ${label}. The largest is ${most.name} (${most.op}) with ${short(most[what])}.` : "";
  const tell = (k) => [["", heavy[k].name], ["layer", heavy[k].op], ["output", heavy[k].shape], ["parameters", number(heavy[k].params)], ["multiply-accumulates", number(heavy[k].macs)]];
  const chart = new Chart({ x: { values: Float64Array.from(places, (k) => k + 1), label: "layer, from input to output", log: false }, y: { values, label, zero: true, log: false }, places, bars: true, tell }, `${label} of each layer. ${caption}`);
  const rows = () => [["layer", "op", "kind", "output", "params", "macs"], ...layers.map((l) => [l.name, l.op, l.kind, l.shape, l.params, l.macs])];
  const table = sortable("layers", el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ["Layer", "Op", "Output", "Parameters", "Multiply-accumulates"].map((head, k) => el("th", { scope: "col", class: k > 1 ? "number" : "" }, head)))),
    el("tbody", {}, layers.map((l) => el("tr", {}, el("th", { scope: "row" }, l.name), el("td", {}, l.op), el("td", { class: "number" }, l.shape), el("td", { class: "number" }, number(l.params)), el("td", { class: "number" }, number(l.macs)))))));
  return section("layers", content.searched && !content.front.length ? "The winner, layer by layer" : content.members.length ? "The first member, layer by layer" : "The first network, layer by layer", "",
    choice("layer", "Show", [["macs", "multiply-accumulates"], ["params", "parameters"]], what, (value) => { chosen.layer = value; render(); }),
    figure("layers", `${label[0].toUpperCase()}${label.slice(1)} of each layer`, chart, caption, rows),
    el("details", { class: "card" }, el("summary", {}, `All ${plural(layers.length, "layer")} as a table`), el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Layers" }, table)));
}

function barList(items) {
  const most = Math.max(...items.map(([, value]) => value), 1e-12);
  const total = items.reduce((sum, [, value]) => sum + value, 0) || 1;
  return el("ul", { class: "bars" }, items.map(([name, value]) => {
    const bar = el("i");
    bar.style.width = `${((100 * Math.max(value, 0)) / most).toFixed(1)}%`;
    return el("li", { title: `${name}: ${number(Math.max(value, 0))} s` }, el("span", { class: "bar-name" }, name), el("span", { class: "bar" }, bar), el("span", { class: "bar-value" }, seconds(Math.max(value, 0)), el("span", { class: "quiet" }, ` ${Math.round((100 * Math.max(value, 0)) / total)} %`)));
  }));
}

function timeSection(content) {
  const scoring = Object.entries(content.time.scoring).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  const clock = Object.entries(content.time.clock ?? {}), around = Object.entries(content.time.around);
  if (!scoring.length && !clock.length && !around.length) return null;
  const card = (name, title, items, caption) => el("figure", { class: "card" }, el("div", { class: "figure-head" }, el("h3", {}, title),
    csvButton(name, title, () => [["part", "seconds"], ...items])), barList(items), el("figcaption", {}, caption));
  const shared = scoring.some(([name]) => name.endsWith("scored together"));
  const sum = (items) => seconds(items.reduce((total, [, value]) => total + value, 0));
  return section("time", "Where the time went", "", el("div", { class: "figures" },
    clock.length ? card("clock", around.length ? "The search" : "The whole run", clock, `${sum(clock)} in all. Building is planning networks to check limits; overhead is the search itself, ranks and the store.`) : "",
    around.length ? card("around", "Before and after the search", around, `${sum(around)} in all. The warm-up trains the supernet; training from scratch is that of the best networks.`) : "",
    scoring.length ? card("seconds", "Scores", scoring, `${sum(scoring)} of scoring and measuring, added up over ${plural(content.networks, "network")} and all workers.${shared ? " What is scored together shares passes over the network: only its time together is measured." : ""}`) : ""));
}

function tableSection(content, table) {
  if (!content.networks) return null;
  return section("networks", "All networks", "", el("div", { class: "card" }, table.node));
}

function value(item) {
  if (item === null || item === undefined || item.length === 0) return el("span", { class: "quiet" }, "none");
  if (Array.isArray(item)) return item.map((one) => (typeof one === "number" ? number(one) : String(one))).join(", ");
  return typeof item === "number" ? number(item) : String(item);
}

// Names and values, those within others after the name of what holds them.
function flat(object, before = []) {
  return Object.entries(object).flatMap(([name, item]) => {
    const path = [...before, name.replaceAll("_", " ")];
    const nested = item && typeof item === "object" && !(Array.isArray(item) && item.every((one) => !one || typeof one !== "object"));
    if (nested && Object.keys(item).length) return flat(item, path);
    return [[path.join(" · "), nested ? null : item]];
  });
}

const pairsOf = (object) => el("dl", { class: "pairs" }, flat(object).map(([name, item]) => el("div", {}, el("dt", {}, name), el("dd", {}, value(item)))));

const quoted = (word) => (/^[\w./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

function manifestSection(content) {
  const { settings, versions, machine, git, argv, started, ...more } = content.manifest;
  const card = (title, item) => (item && Object.keys(item).length ? el("div", { class: "card" }, el("h3", {}, title), pairsOf(item)) : "");
  const { unscored, front, remarks, facts, ...short_ } = content.result;
  const others = content.runs.filter((run) => run.id !== content.run);
  return section("made", "How it was made", "",
    el("div", { class: "card" }, el("div", { class: "figure-head" }, el("h3", {}, argv ? "Command" : "Manifest"),
      csvButton("manifest", "how the run was made", () => [["name", "value"], ...flat({ run: content.run, ...content.manifest }).map(([name, item]) => [name, Array.isArray(item) ? item.join(" ") : item])])),
      argv ? el("pre", { tabindex: 0 }, argv.map(quoted).join(" ")) : ""),
    el("details", {}, el("summary", {}, "Settings, versions and machine"), el("div", { class: "manifest" }, card("Settings", settings), el("div", {}, card("Versions", versions), card("Machine", machine), card("Code", git),
      card("Times", { started, ...(content.resumed.length ? { resumed: content.resumed } : {}), report: content.made }), card("More", more), content.searched ? card("Result", short_) : ""))),
    others.length ? el("details", { class: "card" }, el("summary", {}, `${plural(others.length, "other run")} in this store`),
      el("p", { class: "hint" }, "Report on one of them with ", el("code", {}, "--run ID"), "."),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Other runs" }, sortable("runs", el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ["Run", "Kind", "State", "What"].map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, others.map((run) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, run.id)), el("td", {}, run.kind), el("td", {}, run.state), el("td", {}, run.title)))))))) : "");
}
