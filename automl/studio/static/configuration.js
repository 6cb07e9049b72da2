// Configurations in words.
import { number } from "./format.js";

export const configuration = {
  show(value) {
    return value === null ? "none" : value === true || value === false ? String(value) : number(value);
  },

  lines(params) {
    return Object.entries(params).map(([name, value]) => `${name} = ${this.show(value)}`);
  },

  same(one, other) {
    return JSON.stringify(one) === JSON.stringify(other);
  },
};
