/** What JupyterLab's packages expect of a browser and jsdom has not. */

if (globalThis.DragEvent === undefined) {
  globalThis.DragEvent = class extends MouseEvent {} as unknown as typeof DragEvent;
}
if (!('requestIdleCallback' in window)) {
  globalThis.requestIdleCallback = callback =>
    window.setTimeout(() => callback({ didTimeout: false, timeRemaining: () => 1 }));
}
window.matchMedia = (query: string) =>
  ({
    matches: false,
    media: query,
    addListener: () => undefined,
    addEventListener: () => undefined
  }) as unknown as MediaQueryList;
