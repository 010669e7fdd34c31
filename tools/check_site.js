// What tools/check_site.py asks a page of the book, once it is open in a browser.

window.checkSite = (() => {
  const TRANSPARENT = "rgba(0, 0, 0, 0)";
  const CONTRAST = "color-contrast";

  // Everything that a reader can unfold, unfolded.
  function open() {
    for (const box of document.querySelectorAll("article details")) box.open = true;
    for (const button of document.querySelectorAll("article .toggle-hidden button.toggle-button")) button.click();
  }

  function settle(milliseconds) {
    return new Promise((done) => setTimeout(() => requestAnimationFrame(done), milliseconds));
  }

  function theme(name) {
    document.documentElement.dataset.theme = name;
    document.documentElement.dataset.mode = name;
    for (const change of document.getAnimations())
      if (change.effect.getComputedTiming().endTime !== Infinity) change.finish();
  }

  // --- formulas ------------------------------------------------------------------------------------------

  function math() {
    const faults = [];
    const main = document.querySelector("article") || document.body;
    for (const error of main.querySelectorAll("mjx-merror, [data-mjx-error]"))
      faults.push("error in a formula: " + (error.getAttribute("data-mjx-error") || error.textContent));
    for (const place of main.querySelectorAll(".math"))
      if (place.textContent.trim() && !place.querySelector("mjx-container"))
        faults.push("not typeset: " + place.textContent.trim());
    const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (text.parentElement.closest("pre, code, script, style, textarea, mjx-container, .math")) continue;
      const raw = text.data.match(/\$[^$\n]{1,80}\$|\\\(|\\\[|\\begin\{/);
      if (raw) faults.push("raw TeX: " + text.data.slice(Math.max(0, raw.index - 20), raw.index + 60).trim());
    }
    return faults;
  }

  // All of a formula is drawn in one colour, so that one word in its place can stand for it (see fold).
  function formulas() {
    const faults = [];
    for (const formula of document.querySelectorAll("mjx-container")) {
      const { color } = getComputedStyle(formula);
      for (const part of formula.querySelectorAll("mjx-math, mjx-math *")) {
        const style = getComputedStyle(part);
        if (style.color !== color || style.backgroundColor !== TRANSPARENT || style.opacity !== "1") {
          const paint = `${style.color} on ${style.backgroundColor} in a formula of ${color}`;
          faults.push(`${CONTRAST} (not known inside a formula): ${paint}: ${part.outerHTML}`);
          break;
        }
      }
    }
    return faults;
  }

  // --- width ---------------------------------------------------------------------------------------------

  // A page is as wide as its widest part that no box around it clips or scrolls.
  function overflow() {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return null;
    const clipped = (element) => {
      for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
        if (getComputedStyle(box).overflowX !== "visible") return true;
      return false;
    };
    let widest = null, right = room;
    for (const element of document.body.querySelectorAll("*")) {
      const edge = element.getBoundingClientRect().right;
      if (edge > right + 0.5 && !clipped(element)) { widest = element; right = edge; }
    }
    return `the page is ${document.documentElement.scrollWidth} px wide: ` +
      (widest ? widest.outerHTML.slice(0, 160) : "no single element");
  }

  // --- accessibility -------------------------------------------------------------------------------------

  // Nine of ten elements of a page are words of code and parts of formulas. A word of code is an element only to
  // have a colour, and two with the same tags and classes from the top of the page down have the same: the first
  // stays, the others become text. Nothing but their colour could be wrong with them.
  function foldCode() {
    const paths = new Map([[document.documentElement, ""]]);
    const path = (element) => {
      if (!paths.has(element)) {
        const own = `${element.tagName}.${element.className}[${element.getAttribute("style") || ""}]`;
        paths.set(element, `${path(element.parentElement)} ${own}`);
      }
      return paths.get(element);
    };
    const known = new Set();
    for (const code of document.querySelectorAll("div.highlight pre")) {
      const words = [...code.querySelectorAll("span")];
      const news = words.filter((word) => !known.has(path(word)) && known.add(path(word)));
      if (!news.length) code.textContent = code.textContent;
      else
        for (const word of words)
          if (!news.some((one) => word.contains(one))) word.replaceWith(word.textContent);
    }
  }

  // Each formula gives way to a box of its size with a word in its colour; returns what puts them all back.
  function foldFormulas() {
    const found = [...document.querySelectorAll("mjx-container")].map((formula) => {
      const { width, height } = (formula.querySelector("mjx-math") || formula).getBoundingClientRect();
      return { formula, width, height, parts: [...formula.childNodes] };
    });
    for (const { formula, width, height } of found) {
      const box = document.createElement("span");
      box.textContent = "formula";
      Object.assign(box.style, {
        display: "inline-block", width: `${width}px`, height: `${height}px`, overflow: "hidden", lineHeight: "1",
        whiteSpace: "nowrap",
      });
      formula.replaceChildren(box);
    }
    return () => found.forEach(({ formula, parts }) => formula.replaceChildren(...parts));
  }

  function seen(element, box) {
    return box.width > 1 && box.height > 1 &&
      element.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true });
  }

  const paints = (style) => style.backgroundColor !== TRANSPARENT || style.backgroundImage !== "none";

  // What may lie over or under text that it does not hold.
  function strays() {
    const found = [];
    for (const element of document.body.querySelectorAll("*")) {
      const style = getComputedStyle(element);
      const margins = [style.marginTop, style.marginRight, style.marginBottom, style.marginLeft];
      const shifts = [style.top, style.right, style.bottom, style.left].some((edge) => edge !== "auto" && edge !== "0px");
      const stray = ["absolute", "fixed", "sticky"].includes(style.position) || style.float !== "none" ||
        (style.position === "relative" && shifts) || style.transform !== "none" || style.translate !== "none" ||
        margins.some((margin) => margin.startsWith("-"));
      if (!stray) continue;
      for (const part of [element, ...element.querySelectorAll("*")]) {
        const drawn = ["IMG", "svg", "CANVAS", "VIDEO", "IFRAME"].includes(part.tagName);
        if (drawn || paints(getComputedStyle(part))) found.push([part, part.getBoundingClientRect()]);
      }
    }
    return found.filter(([part, box]) => seen(part, box));
  }

  // Texts whose contrast is the same: colour, size and weight, and the paint of all that is around them. Whatever
  // something else may lie under, and every field, is a group of its own. The longest text of a group comes first.
  function alike() {
    const numbers = new Map(), grounds = new Map([[null, 0]]);
    const number = (text) => numbers.get(text) ?? numbers.set(text, numbers.size + 1).get(text);
    const ground = (element) => {
      if (!grounds.has(element)) {
        const below = ground(element.parentElement);
        const style = getComputedStyle(element);
        const rest = [style.opacity, style.filter, style.mixBlendMode, style.backdropFilter,
          ...["::before", "::after"].map((name) => getComputedStyle(element, name))
            .filter((pseudo) => pseudo.content !== "none" && paints(pseudo))
            .map((pseudo) => pseudo.backgroundColor + pseudo.backgroundImage)].join();
        const plain = !paints(style) && rest === "1,none,normal,none";
        grounds.set(element, plain ? below : number([below, style.backgroundColor, style.backgroundImage, rest].join()));
      }
      return grounds.get(element);
    };
    const around = strays(), groups = new Map();
    for (const element of document.body.querySelectorAll("*")) {
      const field = element.matches("input, select, textarea");
      const texts = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
      if (!field && !texts.length) continue;
      const box = element.getBoundingClientRect();
      if (!seen(element, box)) continue;
      const alone = field || around.some(([stray, edge]) =>
        !stray.contains(element) && !element.contains(stray) && edge.left < box.right && box.left < edge.right &&
        edge.top < box.bottom && box.top < edge.bottom);
      const style = getComputedStyle(element);
      const key = alone ? element : [style.color, style.fontSize, style.fontWeight, style.textShadow,
        style.webkitTextFillColor, style.webkitTextStroke, ground(element)].join();
      const length = texts.reduce((sum, text) => sum + text.data.trim().length, 0);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([element, length]);
    }
    return [...groups.values()].map((group) => group.sort((a, b) => b[1] - a[1]).map(([element]) => element));
  }

  // Axe is shown one text of each group, and all others of a group that it could not judge by the first.
  async function contrast() {
    const violations = [];
    let groups = alike();
    for (const shown of [(group) => group.slice(0, 1), (group) => group.slice(1)]) {
      const members = new Map(groups.flatMap((group) => shown(group).map((element) => [element, group])));
      if (!members.size) break;
      for (const element of members.keys()) element.dataset.contrast = "";
      const result = await axe.run(document, {
        preload: false, elementRef: true, runOnly: { type: "rule", values: [CONTRAST] },
      });
      for (const element of members.keys()) delete element.dataset.contrast;
      const judged = [...result.violations, ...result.passes].flatMap(({ nodes }) => nodes.map((node) => node.element));
      const settled = new Set(judged.map((element) => members.get(element)));
      for (const violation of result.violations)
        for (const node of violation.nodes)
          violations.push({ ...violation, nodes: [node], group: members.get(node.element) });
      groups = groups.filter((group) => !settled.has(group));
    }
    return violations;
  }

  // All rules of axe on what is shown now. `allowed` holds pairs of a rule and the selector that it may fail for.
  // With `preload` axe would fetch the style sheets once more, by wrong addresses.
  async function accessibility([allowed, impacts]) {
    axe.configure({ rules: [{ id: CONTRAST, selector: "[data-contrast]" }] });
    const unfold = foldFormulas();
    try {
      const { violations } = await axe.run(document, {
        preload: false, elementRef: true, resultTypes: ["violations"], rules: { [CONTRAST]: { enabled: false } },
      });
      violations.push(...await contrast());
      const faults = [];
      for (const { id, impact, help, nodes, group } of violations)
        for (const node of nodes) {
          const counts = (element) =>
            !allowed.some(([rule, selector]) => rule === id && element?.closest(selector));
          const guilty = (group ? [node.element, ...group.filter((one) => one !== node.element)] : [node.element])
            .filter(counts);
          if (!guilty.length || !impacts.includes(node.impact || impact)) continue;
          const more = guilty.length > 1 ? ` (and ${guilty.length - 1} like it)` : "";
          faults.push(`${id} (${help}): ${node.target.flat().join(" ")}: ${guilty[0]?.outerHTML ?? node.html}${more}`);
        }
      return faults;
    } finally {
      unfold();
    }
  }

  return { open, settle, theme, math, formulas, overflow, foldCode, accessibility };
})();
