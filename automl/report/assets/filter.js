// Filters rows by an expression such as: bleu > 20 and precision = bf16
//   or := and ("or" and)*     and := not ("and" not)*     not := "not" not | "(" or ")" | comparison | word
const TOKEN = /\s*(?:(>=|<=|!=|==|=|>|<|~|\(|\))|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s()<>=!~"']+))/y;
const COMPARE = {
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
};
const WORDS = { true: true, false: false, none: null, null: null };

// A function of `cell(name)`, which gives the values of a row; the names of `known` are columns.
// Raises Error with a message for people.
export function parseFilter(text, known) {
  const tokens = scan(text);
  let at = 0;
  const peek = () => tokens[at];
  const isWord = (word) => peek()?.word && peek().text.toLowerCase() === word;

  function either() {
    const parts = [both()];
    while (isWord("or")) { at++; parts.push(both()); }
    return parts.length === 1 ? parts[0] : (cell) => parts.some((part) => part(cell));
  }

  function both() {
    const parts = [one()];
    while (isWord("and")) { at++; parts.push(one()); }
    return parts.length === 1 ? parts[0] : (cell) => parts.every((part) => part(cell));
  }

  function one() {
    if (isWord("not")) {
      at++;
      const part = one();
      return (cell) => !part(cell);
    }
    const token = tokens[at++];
    if (!token) throw new Error("the filter ends too early: a comparison is missing");
    if (token.sign === "(") {
      const part = either();
      if (tokens[at++]?.sign !== ")") throw new Error("a ) is missing");
      return part;
    }
    if (token.sign) throw new Error(`'${token.text}' needs a column before it, such as: bleu > 20`);
    const sign = peek()?.sign;
    if (!sign || sign === "(" || sign === ")") return anywhere(token.text);
    at++;
    return comparison(token.text, sign, tokens[at++]);
  }

  function comparison(name, sign, right) {
    if (!known.includes(name)) throw new Error(`there is no column '${name}'${nearest(name, known)}`);
    if (!right || right.sign) throw new Error(`'${name} ${sign}' needs a value after it`);
    const number = Number(right.text);
    const isNumber = right.word && right.text !== "" && !Number.isNaN(number);
    const value = isNumber ? number : right.word && right.text.toLowerCase() in WORDS ? WORDS[right.text.toLowerCase()] : right.text;
    if (sign === "~") return (cell) => String(cell(name) ?? "").toLowerCase().includes(right.text.toLowerCase());
    if (sign in COMPARE) {
      if (typeof value !== "number") throw new Error(`'${name} ${sign}' needs a number, got '${right.text}'`);
      return (cell) => typeof cell(name) === "number" && COMPARE[sign](cell(name), value);
    }
    const equal = (found) => (found ?? null) === value || (typeof found === "string" && found === right.text) || (Array.isArray(found) && found.join(",") === right.text);
    return sign === "!=" ? (cell) => !equal(cell(name)) : (cell) => equal(cell(name));
  }

  function anywhere(word) {
    const small = word.toLowerCase();
    return (cell) => known.some((name) => typeof cell(name) === "string" && cell(name).toLowerCase().includes(small));
  }

  if (!tokens.length) return () => true;
  const whole = either();
  if (at < tokens.length) throw new Error(`'${tokens[at].text}' was not expected: join comparisons with and, or`);
  return whole;
}

function scan(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  const end = text.trimEnd().length;
  while (TOKEN.lastIndex < end) {
    const from = TOKEN.lastIndex;
    const found = TOKEN.exec(text);
    if (!found) throw new Error(`'${text.slice(from).trim()}' cannot be read`);
    const [, sign, double, single, word] = found;
    const quoted = double ?? single;
    tokens.push(sign ? { sign, text: sign } : quoted !== undefined ? { text: quoted.replace(/\\(.)/g, "$1") } : { text: word, word: true });
  }
  return tokens;
}

function nearest(name, known) {
  const near = known.map((one) => [distance(name.toLowerCase(), one.toLowerCase()), one]).sort((a, b) => a[0] - b[0])[0];
  return near && near[0] <= Math.max(2, name.length / 3) ? `: did you mean '${near[1]}'?` : "";
}

function distance(a, b) {
  let row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
    row = next;
  }
  return row[b.length];
}
