// Filters rows by an expression such as: bleu > 20 and precision = bf16
//   or := and ("or" and)*     and := not ("and" not)*     not := "not" not | "(" or ")" | comparison | word
const TOKEN = /\s*(?:(>=|<=|!=|==|=|>|<|~|\(|\))|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s()<>=!~"']+))/y;
const COMPARE = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b };
const WORDS = { true: true, false: false, none: null, null: null };

// A function of `cell(name)`, which gives the values of a row; the names of `known` are columns.
// Raises Error with a message for people.
export function parseFilter(text, known) {
  const tokens = scan(text);
  let at = 0;
  const peek = () => tokens[at];
  const isWord = (word) => peek()?.word && peek().text.toLowerCase() === word;

  function joined(word, part) {
    const parts = [part()];
    while (isWord(word)) { at++; parts.push(part()); }
    return parts;
  }

  function either() {
    const parts = joined("or", () => joined("and", one));
    return (cell) => parts.some((all) => all.every((part) => part(cell)));
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
  const near = known.find((one) => one.toLowerCase().startsWith(name.toLowerCase())) || known.find((one) => name.toLowerCase().startsWith(one.toLowerCase()));
  return near ? `: did you mean '${near}'?` : "";
}
