/** What JupyterLab's packages expect of a browser and jsdom has not. */

if (globalThis.DragEvent === undefined) {
  globalThis.DragEvent = class extends MouseEvent {} as unknown as typeof DragEvent;
}
window.matchMedia = (query: string) =>
  ({
    matches: false,
    media: query,
    addListener: () => undefined,
    addEventListener: () => undefined
  }) as unknown as MediaQueryList;
