// Formulas from stdin, as JSON [[TeX, whether on a line of its own], ...]; their HTML to stdout. The
// only argument is MathJax. No formula has ids of its own: a page may have it twice.
const start = {
  loader: { load: ["input/tex", "output/svg", "a11y/assistive-mml"] },
  options: { enableAssistiveMml: true },
  svg: { fontCache: "none" },
};

require(process.argv[2]).init(start).then(async MathJax => {
  const drawn = [];
  for (const [formula, display] of JSON.parse(require("fs").readFileSync(0, "utf-8")))
    drawn.push(MathJax.startup.adaptor.outerHTML(await MathJax.tex2svgPromise(formula, { display })));
  process.stdout.write(JSON.stringify(drawn));
});
