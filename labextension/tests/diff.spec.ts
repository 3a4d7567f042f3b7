import { describe, expect, it } from 'vitest';

import { diffLines, folded, type ILine, unixLines } from '../src/approvals/diff';

const SIGNS = { same: ' ', removed: '-', added: '+' };

function shown(lines: readonly ILine[]): string[] {
  return lines.map(line => SIGNS[line.kind] + line.text);
}

describe('diffLines', () => {
  it('finds nothing in the same text, whatever its line ends', () => {
    expect(shown(diffLines('a\r\nb\rc', 'a\nb\nc'))).toEqual([' a', ' b', ' c']);
    expect(shown(diffLines('', ''))).toEqual([' ']);
  });

  it('puts what is removed before what is added', () => {
    expect(shown(diffLines('a\nb\nc', 'a\nB\nc'))).toEqual([' a', '-b', '+B', ' c']);
  });

  it('keeps lines between two changes', () => {
    expect(shown(diffLines('a\nb\nc\nd', 'x\na\nc\ne'))).toEqual(['+x', ' a', '-b', ' c', '-d', '+e']);
  });

  it('finds lines that are added, removed, and repeated', () => {
    expect(shown(diffLines('a', 'a\na'))).toEqual([' a', '+a']);
    expect(shown(diffLines('a\na\na', 'a'))).toEqual([' a', '-a', '-a']);
    expect(shown(diffLines('a', ''))).toEqual(['-a', '+']);
    expect(shown(diffLines('\n', '\n\n'))).toEqual([' ', ' ', '+']);
  });

  it('makes both texts again from what it says', () => {
    const words = ['a', 'b', 'c'];
    for (let seed = 0; seed < 300; seed += 1) {
      const text = (n: number): string =>
        Array.from({ length: n % 7 }, (_, at) => words[(seed * (at + 3) + n * at) % 3]).join('\n');
      const [before, after] = [text(seed), text(seed * 5 + 2)];
      const lines = diffLines(before, after);
      const without = (kind: ILine['kind']): string =>
        lines
          .filter(line => line.kind !== kind)
          .map(line => line.text)
          .join('\n');
      expect(without('added')).toBe(before);
      expect(without('removed')).toBe(after);
    }
  });

  it('does not compare what is too long to be compared', () => {
    const text = (sign: string): string =>
      Array.from({ length: 1500 }, (_, n) => `${sign}${n % 9}`).join('\n');
    const lines = diffLines(`head\n${text('a')}`, `head\n${text('b')}`);
    expect(lines).toHaveLength(3001);
    expect(lines[0]).toEqual({ kind: 'same', text: 'head' });
  });
});

describe('folded', () => {
  it('leaves out what is far from a change', () => {
    const before = Array.from({ length: 20 }, (_, n) => `${n}`);
    const after = before.map(line => (line === '10' ? 'ten' : line));
    const lines = folded(diffLines(before.join('\n'), after.join('\n')), 1);
    expect(lines[0]).toEqual({ kind: 'gap', lines: 9 });
    expect(shown(lines.slice(1, 5) as ILine[])).toEqual([' 9', '-10', '+ten', ' 11']);
    expect(lines[5]).toEqual({ kind: 'gap', lines: 8 });
  });
});

describe('unixLines', () => {
  it('ends lines as editors do', () => {
    expect(unixLines('a\r\nb\rc\n')).toBe('a\nb\nc\n');
  });
});
