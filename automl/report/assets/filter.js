// Filters rows: each comparison (loss < 1, precision = bf16) and each word must hold.
const TERM = /([^\s<>=!]+)\s*(>=|<=|!=|=|<|>)\s*("[^"]*"|\S+)|(\S+)/g;
const ORDER = { ">": [1], "<": [-1], ">=": [0, 1], "<=": [-1, 0] };  // signs of a difference

// A function of `cell(name)`, which gives the values of a row; the names of `known` are columns.
// Raises Error with a message for people.
export function parseFilter(text, known) {
  const terms = [...text.matchAll(TERM)].filter(([term]) => term !== "and");
  const parts = terms.map(([, name, sign, value, word]) => {
    if (word) return (cell) => known.some((one) => has(cell(one), word.toLowerCase()));
    if (!known.includes(name)) throw new Error(`there is no column '${name}'${nearest(name, known)}`);
    const wanted = value.replaceAll('"', "");
    const number = Number(wanted);
    const same = (found) => shown(found) === wanted || (typeof found === "number" && found === number);
    if (sign === "=") return (cell) => same(cell(name));
    if (sign === "!=") return (cell) => !same(cell(name));
    if (Number.isNaN(number)) throw new Error(`'${name} ${sign}' needs a number, got '${wanted}'`);
    return (cell) => typeof cell(name) === "number" && ORDER[sign].includes(Math.sign(cell(name) - number));
  });
  return (cell) => parts.every((part) => part(cell));
}

const has = (found, word) => typeof found === "string" && found.toLowerCase().includes(word);

function shown(found) {
  return Array.isArray(found) ? found.join(",") : String(found ?? "none");
}

function nearest(name, known) {
  const [small, one] = [name.toLowerCase(), (found) => found.toLowerCase()];
  const near = known.find((found) => one(found).startsWith(small) || small.startsWith(one(found)));
  return near ? `: did you mean '${near}'?` : "";
}
