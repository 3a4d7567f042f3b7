/** Rows that a person has opened or closed, kept in the browser's tab, so that they survive a reload. */

import * as React from 'react';

const STORAGE_KEY = 'jupyter-exec-ext:open-rows';
/** Those that were changed longest ago are forgotten. */
export const MAX_ROWS = 300;

/** Return whether a row is open; undefined if nobody has opened or closed it. */
export function wasOpened(key: string): boolean | undefined {
  return rows().get(key);
}

export function rememberOpened(key: string, open: boolean): void {
  const all = rows();
  all.delete(key);
  all.set(key, open);
  const [oldest] = all.keys();
  if (all.size > MAX_ROWS && oldest !== undefined) {
    all.delete(oldest);
  }
  try {
    window.sessionStorage.setItem(STORAGE_KEY, JSON.stringify([...all]));
  } catch (error) {
    console.debug('This browser keeps nothing of this page; open rows are forgotten with it.', error);
  }
}

/** A row's state, which is kept. */
export function useOpened(key: string, initially: boolean): [boolean, (open: boolean) => void] {
  const [open, setOpen] = React.useState(() => wasOpened(key) ?? initially);
  return [
    open,
    next => {
      rememberOpened(key, next);
      setOpen(next);
    }
  ];
}

/** Read once: hundreds of rows ask. */
let kept: Map<string, boolean> | null = null;

function rows(): Map<string, boolean> {
  kept ??= read();
  return kept;
}

function read(): Map<string, boolean> {
  try {
    return new Map(JSON.parse(window.sessionStorage.getItem(STORAGE_KEY) ?? '[]') as [string, boolean][]);
  } catch {
    return new Map(); // another program's text, or a browser that keeps nothing
  }
}
