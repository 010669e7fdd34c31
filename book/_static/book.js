// Two things that neither the theme nor the style sheet can do.

// A label that differs from the words on the control is what a screen reader says instead of them.
function dropMisleadingLabels() {
  document.querySelectorAll("details.hide > summary[aria-label], .search-button-field[aria-label]").forEach((control) => {
    if (control.textContent.trim()) control.removeAttribute("aria-label");
  });
  document.querySelectorAll(".bd-sidebar-primary .sidebar-primary-item > .navbar-brand").forEach((logo) => {
    logo.parentElement.setAttribute("role", "navigation");
    logo.parentElement.setAttribute("aria-label", "Front page");
  });
}

// A formula that is wider than its place scrolls inside itself, by keyboard too.
function scrollWideFormulas() {
  document.querySelectorAll(".bd-article mjx-container").forEach((formula) => {
    formula.classList.remove("wide-line");
    const line = formula.parentElement;
    if (!formula.hasAttribute("display") && formula.getBoundingClientRect().width > line.clientWidth + 1) {
      formula.classList.add("wide-line");
    }
    if (formula.scrollWidth > formula.clientWidth + 1 && getComputedStyle(formula).overflowX === "auto") {
      formula.tabIndex = 0;
    }
  });
}

document.addEventListener("DOMContentLoaded", dropMisleadingLabels);
window.addEventListener("load", () => {
  if (!window.MathJax || !MathJax.startup) return;
  MathJax.startup.promise.then(scrollWideFormulas);
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(scrollWideFormulas, 200);
  });
});
