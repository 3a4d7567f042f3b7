import { describe, expect, it } from 'vitest';

import { target } from '../src/panel/roving';

function rows(html: string): HTMLElement[] {
  const host = document.createElement('div');
  host.innerHTML = html;
  return [...host.querySelectorAll<HTMLElement>('[data-roving]')];
}

describe('target', () => {
  const all = rows(`
    <button data-roving="a" aria-expanded="true"></button>
    <button data-roving="a1" data-within="a" aria-expanded="false"></button>
    <button data-roving="a2" data-within="a" aria-expanded="true"></button>
    <button data-roving="b" aria-expanded="false"></button>`);

  it('goes up and down, and not beyond the ends', () => {
    expect(target(all, 0, 'ArrowDown')).toBe(all[1]);
    expect(target(all, 3, 'ArrowDown')).toBeNull();
    expect(target(all, 1, 'ArrowUp')).toBe(all[0]);
    expect(target(all, 0, 'ArrowUp')).toBeNull();
    expect(target(all, 2, 'Home')).toBe(all[0]);
    expect(target(all, 0, 'End')).toBe(all[3]);
  });

  it('opens, closes, and goes to what a row is within', () => {
    expect(target(all, 3, 'ArrowRight')).toBe('toggle');
    expect(target(all, 0, 'ArrowRight')).toBe(all[1]);
    expect(target(all, 2, 'ArrowLeft')).toBe('toggle');
    expect(target(all, 1, 'ArrowLeft')).toBe(all[0]);
    expect(target(all, 3, 'ArrowLeft')).toBeNull();
  });

  it('leaves other keys alone', () => {
    expect(target(all, 0, 'x')).toBeNull();
    expect(target(all, 0, 'Tab')).toBeNull();
  });
});
