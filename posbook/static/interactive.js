// The drawing of posbook/interactive.py. The numbers come from Python; what is computed here is one closed form.

function posgeomFigure(root, kind, data, live) {
  root.insertAdjacentHTML("beforeend", live);
  const svg = root.querySelector("svg");
  const control = (name) => root.querySelector(`[data-name="${name}"]`);

  function make(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    svg.appendChild(element);
  }

  function line(points, attributes) {
    const path = points.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" ");
    make("polyline", { points: path, fill: "none", ...attributes });
  }

  const label = (x, y, text, more) => make("text", { x, y, ...more }, text);

  // Sighted readers read it below the drawing; screen readers read it out when it changes.
  function say(text) {
    root.querySelector(".posgeom-words").textContent = text;
    svg.setAttribute("aria-label", text);
  }

  function map() {
    const corpus = control("corpus").value, treatments = data.corpora[corpus], pick = control("treatment");
    for (const option of pick.options) option.disabled = !(option.value in treatments);
    if (!(pick.value in treatments)) pick.value = Object.keys(treatments)[0];
    const { points, stress } = treatments[pick.value];
    const n = points.length, d = Number(control("axes").value), most = stress.length;

    const flat = points.map(([x, y]) => [x, d > 1 ? y : 0]);
    const low = Math.min(...flat.flat()), size = Math.max(...flat.flat()) - low || 1;
    const place = ([x, y]) => [20 + 280 * (x - low) / size, 310 - 280 * (y - low) / size];
    line(flat.map(place), { stroke: "#9a9a9a", "stroke-width": 1 });
    flat.forEach((point, i) => {
      const [cx, cy] = place(point), t = i / Math.max(n - 1, 1);
      const fill = `rgb(${Math.round(68 + 185 * t * t)}, ${Math.round(1 + 230 * t)}, ` +
        `${Math.round(84 + 70 * t - 110 * t * t)})`;
      make("circle", { cx, cy, r: 4, fill, stroke: "#1a1a1a", "stroke-width": 0.5 });
    });
    for (const i of [0, n - 1]) {
      const [x, y] = place(flat[i]);
      label(Math.min(x + 7, 280), Math.max(y - 6, 16), String(i));
    }

    const top = Math.max(...stress, 1e-9);
    const across = (k) => 390 + 230 * (k - 1) / Math.max(most - 1, 1), up = (value) => 280 - 240 * value / top;
    line([[375, 30], [375, 285], [630, 285]], { stroke: "#4a4a4a" });
    line(stress.map((value, k) => [across(k + 1), up(value)]), { stroke: "#0072B2", "stroke-width": 2 });
    make("circle", { cx: across(d), cy: up(stress[d - 1]), r: 7, fill: "#D55E00", stroke: "#1a1a1a" });
    label(375, 20, `stress, from 0 to ${top.toPrecision(2)}`);
    label(386, 306, "1");
    label(490, 322, "axes");
    label(610, 306, String(most));
    say(`${corpus}, ${pick.value}: ${n} positions. With ${d} ${d > 1 ? "axes" : "axis"} classical scaling ` +
      `leaves a stress of ${stress[d - 1].toPrecision(4)}. The map shows ` +
      `${d > 1 ? "the first two axes" : "the one axis"}; position 0 is dark, the last one light.`);
  }

  function scale() {
    const low = -3, high = 2, name = control("scheme").value, scheme = data.schemes[name];
    const s = 10 ** Number(control("scale").value);
    const stress = (value) => 1 - 2 * value * scheme.slope + value * value * scheme.square;
    const across = (value) => 50 + 570 * (Math.log10(value) - low) / (high - low);
    const up = (value) => 285 - 255 * Math.min(value, 2) / 2;

    line([[50, 25], [50, 285], [625, 285]], { stroke: "#4a4a4a" });
    for (const value of [0, 1, 2]) label(42, up(value) + 5, String(value), { "text-anchor": "end" });
    for (let k = low; k <= high; k += 1) label(across(10 ** k), 305, String(10 ** k), { "text-anchor": k === high ? "end" : "middle" });
    label(58, 18, "stress (cut off at 2)");
    label(300, 324, "scale");
    line([[50, up(1)], [625, up(1)]], { stroke: "#1a1a1a", "stroke-dasharray": "6 4" });
    label(625, up(1) - 7, "no encoding", { "text-anchor": "end" });
    const values = Array.from({ length: 401 }, (_, k) => 10 ** (low + (high - low) * k / 400));
    const curve = values.filter((value) => stress(value) <= 2).map((value) => [across(value), up(stress(value))]);
    line(curve, { stroke: "#0072B2", "stroke-width": 2.5 });
    const best = across(Math.min(Math.max(scheme.best, 10 ** low), 10 ** high));
    line([[best, up(scheme.least)], [best, 285]], { stroke: "#00734F", "stroke-width": 2, "stroke-dasharray": "2 4" });
    make("rect", { x: best - 7, y: up(scheme.least) - 7, width: 14, height: 14, fill: "#009E73", stroke: "#1a1a1a" });
    make("circle", { cx: across(s), cy: up(stress(s)), r: 8, fill: "#D55E00", stroke: "#1a1a1a" });
    say(`${name} at scale ${s.toPrecision(3)}: stress ${stress(s).toPrecision(4)}. ` +
      `As it comes (scale 1): ${scheme.raw.toPrecision(4)}. ` +
      `Best scale ${scheme.best.toPrecision(3)} (square): ${scheme.least.toPrecision(4)}.`);
  }

  let next = "j";

  function triples() {
    const name = control("matrix").value, { D, rate } = data.matrices[name], n = D.length, side = 300 / n;
    const [i, j, k] = ["i", "j", "k"].map((position) => Number(control(position).value));
    const positive = D.flat().filter((value) => value > 0);
    const least = Math.min(...positive), most = Math.max(...positive), span = most - least || 1;
    D.forEach((row, a) => row.forEach((value, b) => {
      const t = a === b ? 0 : 0.08 + 0.92 * (value - least) / span;
      const fill = `rgb(${Math.round(254 * t)}, ${Math.round(34 + 198 * t)}, ${Math.round(78 + 45 * t - 70 * t * t)})`;
      const where = { x: 10 + b * side, y: 10 + a * side, width: side + 0.3, height: side + 0.3 };
      make("rect", { ...where, fill, "data-row": a, "data-column": b });
    }));
    for (const [column, colour] of [[j, "#D55E00"], [k, "#000000"]]) {
      const where = { x: 10 + column * side, y: 10 + i * side, width: side, height: side, fill: "none" };
      make("rect", { ...where, stroke: "#ffffff", "stroke-width": 6, "pointer-events": "none" });
      make("rect", { ...where, stroke: colour, "stroke-width": 3.5, "pointer-events": "none" });
    }

    const near = Math.abs(i - j), far = Math.abs(i - k), toJ = D[i][j], toK = D[i][k];
    label(340, 35, `from i = ${i}`);
    for (const [y, text, value, fill] of [
      [75, `to j = ${j}, lag ${near}: ${toJ.toFixed(4)}`, toJ, "#D55E00"],
      [145, `to k = ${k}, lag ${far}: ${toK.toFixed(4)}`, toK, "#000000"],
    ]) {
      label(340, y, text);
      make("rect", { x: 340, y: y + 8, width: 280 * value / most, height: 18, fill });
    }
    let verdict;
    if (new Set([i, j, k]).size < 3) {
      verdict = "Not a triple: i, j and k must differ.";
    } else if (near === far) {
      verdict = "Not counted: j and k are equally near to i.";
    } else {
      const [closer, other] = near < far ? ["j", "k"] : ["k", "j"];
      const violation = near < far ? toJ > toK : toK > toJ;
      verdict = `${violation ? "A violation" : "In order"}: ${closer} is nearer to i than ${other}, and ` +
        (violation ? "yet its distance is larger." : "its distance is not larger.");
      label(340, 220, violation ? "violation" : "in order", { style: "font-weight: bold" });
    }
    say(`${name}: D[${i},${j}] = ${toJ.toFixed(4)} at lag ${near}, D[${i},${k}] = ${toK.toFixed(4)} ` +
      `at lag ${far}. ${verdict} Of all triples, ${(100 * rate).toFixed(2)} % are violations.`);
  }

  function draw() {
    svg.replaceChildren();
    ({ map, scale, triples })[kind]();
  }

  root.querySelectorAll("select, input").forEach((input) => input.addEventListener("input", draw));
  if (kind === "scale") {
    control("best").addEventListener("click", () => {
      control("scale").value = Math.log10(data.schemes[control("scheme").value].best);
      draw();
    });
  }
  if (kind === "triples") {
    // A click picks j; a second one in the same row picks k; one in another row begins again.
    svg.addEventListener("click", (event) => {
      const { row, column } = event.target.dataset;
      if (row === undefined) return;
      if (row !== control("i").value) next = "j";
      control("i").value = row;
      control(next).value = column;
      next = next === "j" ? "k" : "j";
      draw();
    });
  }
  root.classList.add("posgeom-on");
  draw();
}
