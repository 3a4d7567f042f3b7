/** Scrolling of a row that was just opened: its content comes into view as it arrives. */

/** Outputs and code arrive within this time, or the person looks elsewhere. */
const SETTLE_MS = 1500;

/** Keep an item of a list in view while it grows, until the person scrolls or presses a key. */
export function revealItem(within: Element): void {
  const item = within.closest('li');
  if (item === null) {
    return;
  }
  const observer = new ResizeObserver(() => item.scrollIntoView({ block: 'nearest' }));
  observer.observe(item);
  const stop = new AbortController();
  const end = (): void => {
    observer.disconnect();
    window.clearTimeout(timer);
    stop.abort();
  };
  const timer = window.setTimeout(end, SETTLE_MS);
  for (const event of ['wheel', 'keydown', 'pointerdown']) {
    document.addEventListener(event, end, { signal: stop.signal, capture: true, passive: true });
  }
}
