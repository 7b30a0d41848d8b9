// Light or dark as the reader's system is, from the first moment; without JavaScript the page is light.
const page = document.documentElement.dataset;
page.mode ||= "auto";
page.theme ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

// A result of the search shows a part of its page where pages can be fetched; a browser refuses that to files.
if (typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";
}

// The theme takes the focus away from a button that was pressed. Who pressed it with a key goes on from there.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button && event.detail === 0 && document.activeElement === document.body) button.focus();
});

// The book asks. A prediction becomes a form, and what was measured stays folded until the reader has made a guess or
// says "Show me". Guesses stay in this browser. Without JavaScript nothing is folded.
const RIGHT = 1.1, CLOSE = 1.25;  // the factors of labkit/lesson/verdicts.py
const GUESSES = "deployment-workbook-guesses";

function verdict(guess, { result, low, high, open }) {
  if (open !== undefined || result === undefined) return "open";
  const [own, truth] = [Number(guess), Number(result)];
  if (Number.isNaN(own) || Number.isNaN(truth)) return guess === result ? "right" : "off";
  if (own === truth) return "right";
  const factor = own * truth > 0 ? Math.exp(Math.abs(Math.log(own / truth))) : Infinity;
  if (factor > RIGHT && low !== undefined && Number(low) <= own && own <= Number(high)) return "open";
  return factor <= RIGHT ? "right" : factor <= CLOSE ? "close" : "off";
}

function guesses() {
  try { return JSON.parse(localStorage.getItem(GUESSES)) || {}; } catch { return {}; }
}

function keepGuesses(all) {
  try { localStorage.setItem(GUESSES, JSON.stringify(all)); return true; } catch { return false; }
}

function element(tag, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
}

// What lies between a question and the next heading or question after its result: all that would tell the result.
function told(asked, revealed) {
  const cellOf = (card) => card.closest(".cell");
  const blocks = [...document.querySelectorAll(".bd-article section > :not(section)")];
  const [first, last] = [blocks.indexOf(cellOf(asked)), blocks.indexOf(cellOf(revealed))];
  const stops = (block) => /^H\d$/.test(block.tagName) || block.querySelector("[data-asked]");
  const end = blocks.findIndex((block, place) => place > last && stops(block));
  return blocks.slice(first + 1, end < 0 ? undefined : end).filter((block) => !stops(block));
}

const closed = new Map();  // {block: the questions that fold it}: two questions may have their results in one cell

function ask(asked, revealed, number) {
  const [lesson, id] = [location.pathname.split("/").pop().replace(".html", ""), asked.dataset.asked];
  const key = `${lesson} ${id}`, question = asked.firstElementChild.textContent.replace(/^Predict: /, "");
  const options = JSON.parse(asked.dataset.options || "null"), unit = asked.dataset.unit || "";
  const folded = told(asked, revealed), said = element("p", { className: "guess-said" });
  said.setAttribute("role", "status");
  const fields = options
    ? options.map((option, place) => element("label", {}, element("input", { type: "radio", name: `guess-${number}`, value: option, required: true }), ` ${option}`))
    : [element("label", {}, "My guess: ", element("input", { type: "number", step: "any", name: `guess-${number}`, required: true }), ` ${unit}`)];
  const show = element("button", { type: "button" }, "Show me");
  const form = element("form", { className: "guess" }, element("fieldset", {},
    element("legend", {}, "Your guess opens what follows"), ...fields, element("button", {}, "That is my guess"), show));
  const fold = () => folded.forEach((block) => { closed.set(block, (closed.get(block) || new Set()).add(key)); block.hidden = true; });
  const unfold = () => folded.forEach((block) => { closed.get(block)?.delete(key); block.hidden = closed.get(block)?.size > 0; });
  const where = () => revealed.closest("[hidden]") ? "What was measured opens with the next question." : "What was measured stands below.";
  const tell = ({ guess, verdict }) => { said.textContent = `You guessed ${guess}${options ? "" : ` ${unit}`}: ${verdict}. ${where()}`; };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const guess = new FormData(form).get(`guess-${number}`);
    const { result = "" } = revealed.dataset, short = options ? result : String(Number(Number(result).toPrecision(3)));
    const own = { lesson, question, unit: options ? "" : unit, guess, result: short, verdict: verdict(guess, revealed.dataset) };
    const kept = keepGuesses({ ...guesses(), [key]: own });
    unfold();
    tell(own);
    if (!kept) said.textContent += " Your browser keeps nothing for this page: the guess is forgotten when you leave.";
  });
  show.addEventListener("click", () => { unfold(); said.textContent = `No guess made. ${where()}`; });
  asked.append(form, said);
  const earlier = guesses()[key];
  if (earlier) tell(earlier); else fold();
}

function listGuesses(place) {
  const all = Object.values(guesses());
  const row = (tag, ...cells) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));
  const lines = all.map((own) => row("td", own.lesson, own.question, `${own.guess} ${own.unit}`, `${own.result} ${own.unit}`, own.verdict));
  const near = all.filter((own) => own.verdict === "right" || own.verdict === "close").length;
  const judged = all.filter((own) => own.verdict !== "open").length;
  const forget = element("button", { type: "button" }, "Forget my guesses");
  forget.addEventListener("click", () => { keepGuesses({}); listGuesses(place); });
  const table = element("div", { className: "pst-scrollable-table-container", tabIndex: 0 }, element("table", { className: "table" },
    element("thead", {}, row("th", "lesson", "question", "your guess", "measured", "verdict")), element("tbody", {}, ...lines)));
  place.replaceChildren(...(all.length ? [element("p", {}, `${near} of ${judged} guesses were right or close.`), table, forget]
    : [element("p", {}, "This browser holds no guess of yours yet. ", element("a", { href: "lessons/00_start_here.html" }, "Lesson 00"), " asks the first question.")]));
}

document.addEventListener("DOMContentLoaded", () => {
  [...document.querySelectorAll("[data-asked]")].forEach((asked, number) => {
    const revealed = document.querySelector(`[data-revealed="${CSS.escape(asked.dataset.asked)}"]`);
    if (revealed) ask(asked, revealed, number);
  });
  const place = document.getElementById("guess-list");
  if (place) listGuesses(place);
});
