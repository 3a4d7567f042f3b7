import { ReactWidget } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { describe, expect, it } from 'vitest';

import { target, useRoving } from '../src/panel/roving';
import { until } from './helpers';

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

describe('useRoving', () => {
  function Rows(props: { names: readonly string[] }): React.ReactElement {
    const { ref, onKeyDown, onFocus } = useRoving();
    return (
      <div ref={ref} onKeyDown={onKeyDown} onFocus={onFocus}>
        {props.names.map(name => (
          <div key={name}>
            <button data-roving={name} />
            <button className={`act-${name}`} />
          </div>
        ))}
      </div>
    );
  }

  async function shown(): Promise<{ show: (...names: string[]) => void; focus: (selector: string) => void }> {
    let set: (names: readonly string[]) => void = () => undefined;
    function Root(): React.ReactElement {
      const [names, setNames] = React.useState<readonly string[]>(['a', 'b', 'c']);
      set = setNames;
      return <Rows names={names} />;
    }
    const widget = ReactWidget.create(<Root />);
    Widget.attach(widget, document.body);
    await until(() => widget.node.querySelector('[data-roving="c"]') !== null);
    return {
      show: (...names) => set(names),
      focus: selector => widget.node.querySelector<HTMLElement>(selector)?.focus()
    };
  }

  const focused = (): string | undefined => (document.activeElement as HTMLElement | null)?.dataset.roving;

  it('gives the focus of a row that is gone to the one in its place, and of the last to the one before', async () => {
    const { show, focus } = await shown();
    focus('.act-b');
    show('a', 'c');
    await until(() => focused() === 'c');
    show('a');
    await until(() => focused() === 'a');
  });

  it('takes no focus from elsewhere', async () => {
    const { show, focus } = await shown();
    focus('[data-roving="b"]');
    const elsewhere = document.body.appendChild(document.createElement('input'));
    elsewhere.focus();
    show('a', 'c');
    await until(() => document.querySelectorAll('[data-roving="b"]').length === 0);
    expect(document.activeElement).toBe(elsewhere);
  });
});
