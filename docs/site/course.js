// What the theme leaves open for whoever reads with the keyboard, a screen reader or on paper.

const SAY_SO = ".cell_output:has(> img), .stepper .picture > div, table";

// A picture may be as small as to have letters of 11 px, which are of 11 points in it.
function fitPictures() {
  for (const image of document.querySelectorAll(".cell_output img"))
    Object.assign(image.style, { minWidth: `${0.75 * image.naturalWidth}px`, maxWidth: "100%" });
}

const PRINTED = ".cell_output pre, :is(.highlight-none, .highlight-text, .highlight-console) pre";

// What is printed wraps; but columns that are wrapped are columns no more, so there a phone scrolls.
function keepColumns() {
  for (const printed of document.querySelectorAll(PRINTED)) {
    const lines = printed.textContent.split("\n");
    const columns = lines.some(line => /\S {2,}\S/.test(line));
    printed.classList.toggle("columns", columns && lines.every(line => line.length <= 88));
  }
}

function reachWhatScrolls() {
  // A box that scrolls sideways is scrolled with the arrow keys, once it can have the focus.
  for (const box of document.querySelectorAll(`pre, mjx-container[display], div.math, ${SAY_SO}`)) {
    const wide = box.scrollWidth > box.clientWidth;
    if (wide) box.tabIndex = 0;
    else if (box.tabIndex === 0) box.removeAttribute("tabindex");
    if (box.matches(SAY_SO)) box.classList.toggle("sideways", wide);
  }
}

addEventListener("load", () => {
  // Its name for a screen reader is then what is written on it.
  for (const button of document.querySelectorAll(".search-button-field"))
    button.removeAttribute("aria-label");
  for (const fold of document.querySelectorAll("summary[aria-label]"))
    fold.removeAttribute("aria-label");
  // All of a page is in a landmark, the theme's link to the front page, too.
  for (const link of document.querySelectorAll(".navbar-brand.logo")) {
    link.parentElement.setAttribute("role", "navigation");
    link.parentElement.setAttribute("aria-label", link.textContent.trim());
  }
  fitPictures();
  keepColumns();
  reachWhatScrolls();
});
// What is copied goes through a box at the end of the page, which takes the focus along.
addEventListener("click", ({ target }) => target.closest?.(".copybtn")?.focus());
addEventListener("resize", reachWhatScrolls);
addEventListener("toggle", reachWhatScrolls, true); // what a fold held
// On paper everything is open, and dark on light; afterwards all is as the reader had it.
let closed = [], theme;
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const fold of closed) fold.open = true;
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  for (const fold of closed) fold.open = false;
  document.documentElement.dataset.theme = theme;
});
