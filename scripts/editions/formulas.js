// Formulas from stdin, as JSON [[TeX, whether on a line of its own], ...]; their HTML to stdout. The
// only argument is MathJax. No formula has ids of its own: a page may have it twice. Between two parts
// of one, which \qquad keeps apart, a line may end: on a phone each has its own.
const start = {
  loader: { load: ["input/tex", "output/svg", "a11y/assistive-mml"] },
  options: { enableAssistiveMml: true },
  svg: { fontCache: "none" },
};

require(process.argv[2]).init(start).then(async MathJax => {
  const drawn = [];
  const draw = async (formula, display) =>
    MathJax.startup.adaptor.outerHTML(await MathJax.tex2svgPromise(formula, { display }));
  for (const [formula, display] of JSON.parse(require("fs").readFileSync(0, "utf-8"))) {
    const parts = display ? formula.split(/\s*(?:\\qquad\s*)+/) : [formula], pictures = [];
    for (const part of parts.length > 1 ? parts : [])
      pictures.push((await draw(part, display)).match(/<svg.*<\/svg>/s)[0]);
    const whole = await draw(formula, display);
    drawn.push(pictures.length ? whole.replace(/<svg.*<\/svg>/s, () => pictures.join(" ")) : whole);
  }
  process.stdout.write(JSON.stringify(drawn));
});
