/**
 * One stop for the Tab key in a list of rows, and arrow keys within it.
 *
 * The rows are the elements with `data-roving`; those that open and close say so with `aria-expanded`, and those in an
 * open one have its `data-roving` as `data-within`.
 */

import * as React from 'react';

const ROWS = '[data-roving]';

export function useRoving(): {
  ref: React.RefObject<HTMLDivElement>;
  onKeyDown: (event: React.KeyboardEvent) => void;
  onFocus: (event: React.FocusEvent) => void;
} {
  const ref = React.useRef<HTMLDivElement>(null);
  const rows = (): HTMLElement[] => [...(ref.current?.querySelectorAll<HTMLElement>(ROWS) ?? [])];
  const choose = (chosen: HTMLElement | undefined): void => {
    for (const row of rows()) {
      row.tabIndex = row === chosen ? 0 : -1;
    }
  };

  /** The focused element, and the number of its row. */
  const focused = React.useRef<{ element: Element; at: number } | null>(null);

  React.useEffect(() => {
    const ensure = (): void => {
      const all = rows();
      const lost = focused.current !== null && !focused.current.element.isConnected ? focused.current : null;
      if (lost !== null) {
        focused.current = null;
        // Later: the buttons of a row go while the focus is on its way to the next element, and then it is nowhere.
        window.setTimeout(() => {
          if (document.activeElement === document.body) {
            const now = rows();
            now[Math.min(lost.at, now.length - 1)]?.focus(); // the row that has taken its place
          }
        });
      }
      if (!all.some(row => row.tabIndex === 0)) {
        choose(all[0]);
      }
    };
    ensure();
    // Rows come and go without this component being asked.
    const observer = new MutationObserver(ensure);
    if (ref.current !== null) {
      observer.observe(ref.current, { childList: true, subtree: true });
    }
    return () => observer.disconnect();
  }, []);

  const onFocus = (event: React.FocusEvent): void => {
    const { target: element } = event;
    if (element instanceof HTMLElement) {
      const before = rows().filter(
        row => row.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING
      );
      focused.current = { element, at: element.matches(ROWS) ? before.length : before.length - 1 };
      if (element.matches(ROWS)) {
        choose(element);
      }
    }
  };

  const onKeyDown = (event: React.KeyboardEvent): void => {
    if (
      !(event.target instanceof HTMLElement) ||
      !event.target.matches(ROWS) ||
      event.altKey ||
      event.ctrlKey
    ) {
      return;
    }
    const all = rows();
    const next = target(all, all.indexOf(event.target), event.key);
    if (next === null) {
      return;
    }
    event.preventDefault();
    if (next === 'toggle') {
      event.target.click();
    } else {
      next.focus();
    }
  };
  return { ref, onKeyDown, onFocus };
}

/** Where a key leads from a row: to another one, to its own opening or closing, or nowhere. */
export function target(rows: readonly HTMLElement[], at: number, key: string): HTMLElement | 'toggle' | null {
  const row = rows[at];
  const expanded = row?.getAttribute('aria-expanded');
  switch (key) {
    case 'ArrowDown':
      return rows[at + 1] ?? null;
    case 'ArrowUp':
      return rows[at - 1] ?? null;
    case 'Home':
      return rows[0] ?? null;
    case 'End':
      return rows[rows.length - 1] ?? null;
    case 'ArrowRight':
      return expanded === 'false' ? 'toggle' : (rows[at + 1] ?? null);
    case 'ArrowLeft':
      if (expanded === 'true') {
        return 'toggle';
      }
      return rows.find(each => each.dataset.roving === row?.dataset.within) ?? null;
    default:
      return null;
  }
}
