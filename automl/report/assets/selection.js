// The trials that a person has selected, in a figure or by a filter. Every figure and table that shows trials follows it.
export class Selection extends EventTarget {
  constructor() {
    super();
    this.trials = null;  // a Set of numbers; null for no selection
    this.words = "";  // how it was made
  }

  // Select trials; none of them is the same as no selection.
  set(numbers, words = "") {
    const found = numbers === null ? null : new Set(numbers);
    this.trials = found?.size ? found : null;
    this.words = this.trials ? words : "";
    this.dispatchEvent(new Event("change"));
  }

  toggle(number) {
    const found = new Set(this.trials || []);
    if (!found.delete(number)) found.add(number);
    this.set(found, "chosen one by one");
  }

  // Whether a trial is shown as usual: it is selected, or nothing is.
  has(number) {
    return this.trials === null || this.trials.has(number);
  }
}
