/** Differences between two texts, line by line: pure. */

export interface ILine {
  readonly kind: 'same' | 'removed' | 'added';
  readonly text: string;
}

/** Lines that are the same and far from any other. */
export interface IGap {
  readonly kind: 'gap';
  readonly lines: number;
}

/** More pairs of lines than this are not compared: everything between the first and the last change is then one. */
const MAX_PAIRS = 1_000_000;

/** How many lines that are the same are shown around a change. */
const CONTEXT_LINES = 3;

/** Editors end every line with a line feed. */
export function unixLines(text: string): string {
  return text.replace(/\r\n?/g, '\n');
}

export function diffLines(before: string, after: string): ILine[] {
  const [a, b] = [unixLines(before).split('\n'), unixLines(after).split('\n')];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) {
    head += 1;
  }
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  ) {
    tail += 1;
  }
  return [
    ...a.slice(0, head).map(same),
    ...between(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(same)
  ];
}

/** Leave out what is the same and far from any change. */
export function folded(lines: readonly ILine[], context = CONTEXT_LINES): (ILine | IGap)[] {
  const near = new Array<boolean>(lines.length).fill(false);
  lines.forEach((line, at) => {
    if (line.kind !== 'same') {
      near.fill(true, Math.max(0, at - context), at + context + 1);
    }
  });
  const shown: (ILine | IGap)[] = [];
  lines.forEach((line, at) => {
    const last = shown[shown.length - 1];
    if (near[at]) {
      shown.push(line);
    } else if (last?.kind === 'gap') {
      shown[shown.length - 1] = { kind: 'gap', lines: last.lines + 1 };
    } else {
      shown.push({ kind: 'gap', lines: 1 });
    }
  });
  return shown;
}

/** By the longest common subsequence. */
function between(a: readonly string[], b: readonly string[]): ILine[] {
  if (a.length * b.length > MAX_PAIRS) {
    return [...a.map(removed), ...b.map(added)];
  }
  // common[i * width + j]: how long that of the lines from i and from j on is.
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number): number => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: ILine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [old, fresh] = [a[i], b[j]];
    if (old !== undefined && old === fresh) {
      lines.push(same(old));
      [i, j] = [i + 1, j + 1];
    } else if (old !== undefined && (fresh === undefined || at(i + 1, j) >= at(i, j + 1))) {
      lines.push(removed(old));
      i += 1;
    } else {
      lines.push(added(fresh ?? ''));
      j += 1;
    }
  }
  return lines;
}

function same(text: string): ILine {
  return { kind: 'same', text };
}

function removed(text: string): ILine {
  return { kind: 'removed', text };
}

function added(text: string): ILine {
  return { kind: 'added', text };
}
