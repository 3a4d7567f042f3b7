/** Shows values with JupyterLab's renderers: never trusted, and only those that neither run nor load anything. */

import {
  htmlRendererFactory,
  imageRendererFactory,
  markdownRendererFactory,
  RenderMimeRegistry,
  textRendererFactory
} from '@jupyterlab/rendermime';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import type { MimeBundle } from '../api/types';
import { StrictSanitizer } from '../safety/sanitizer';
import { overwritten, reveal, terminalText } from '../safety/text';
import { markdownToHtml } from './markdown';

/** Longer markup is shown as the text that it is: it would be parsed at once. */
const MAX_MARKUP_CHARS = 400_000;
/** Each step of the parser of Markdown may take the square of this. */
const MAX_MARKDOWN_CHARS = 20_000;
const MAX_TEXT_CHARS = 64_000;

const STDOUT = 'application/vnd.jupyter.stdout';
/** `<VegaLite 5 object>`: says nothing where the thing itself is there. */
const OBJECT_REPR = /^<[^<>]*>\s*$/;
/** Base64 is nothing to read. */
const BINARY = /^(audio|video|image|font)\/|^application\/(pdf|zip|octet-stream)$/;
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp'];

/**
 * The renderers of other extensions are left out: a chart's data or a map's tiles would be loaded from wherever the agent
 * says. Formulas stay text, since what sets them knows links and styles.
 */
export function strictRenderers(): IRenderMimeRegistry {
  return new RenderMimeRegistry({
    initialFactories: [
      htmlRendererFactory,
      markdownRendererFactory,
      imageRendererFactory,
      textRendererFactory
    ],
    sanitizer: new StrictSanitizer(),
    // JupyterLab's own parser draws Mermaid's diagrams, and they may have pictures from elsewhere.
    markdownParser: { render: source => markdownToHtml(source) }
  });
}

/** Choose the part of a bundle to show and its renderer; pure. */
export function chosen(data: MimeBundle): { mimeType: string; data: MimeBundle } {
  const html = text(data['text/html']);
  if (html !== null && html.length <= MAX_MARKUP_CHARS) {
    return { mimeType: 'text/html', data: { 'text/html': html } };
  }
  const markdown = text(data['text/markdown']);
  if (markdown !== null && markdown.length <= MAX_MARKDOWN_CHARS) {
    return { mimeType: 'text/markdown', data: { 'text/markdown': markdown } };
  }
  const svg = text(data['image/svg+xml']);
  if (svg !== null) {
    // As a picture: there, scripts do not run and nothing is loaded.
    return { mimeType: 'image/svg+xml', data: { 'image/svg+xml': svg } };
  }
  for (const mimeType of PICTURES) {
    const picture = text(data[mimeType]);
    if (picture !== null && /^[A-Za-z0-9+/=\s]*$/.test(picture)) {
      return { mimeType, data: { [mimeType]: picture } };
    }
  }
  return plain(asText(data));
}

/** Text as a terminal would show it, in colours. */
export function plain(source: string): { mimeType: string; data: MimeBundle } {
  return { mimeType: STDOUT, data: { [STDOUT]: terminalText(overwritten(source), true) } };
}

/** Return a node that shows it; `dispose` gives back what it holds. */
export function render(
  renderers: IRenderMimeRegistry,
  shown: { mimeType: string; data: MimeBundle },
  label: string
): { node: HTMLElement; dispose: () => void } {
  if (shown.mimeType === 'image/svg+xml') {
    const picture = document.createElement('img');
    picture.alt = label;
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(wellFormed(text(shown.data[shown.mimeType]) ?? ''))}`;
    return { node: picture, dispose: () => undefined };
  }
  const renderer: IRenderMime.IRenderer = renderers.createRenderer(shown.mimeType);
  const model = renderers.createModel({ data: { ...shown.data }, trusted: false });
  renderer.renderModel(model).then(
    () => {
      renderer.node.querySelectorAll('img:not([alt])').forEach(each => each.setAttribute('alt', label));
      // JupyterLab gives headings links to themselves, after the sanitizer: they would change the page's own address.
      renderer.node.querySelectorAll('.jp-InternalAnchorLink').forEach(each => each.remove());
    },
    (error: unknown) => {
      renderer.node.textContent = String(error);
    }
  );
  return { node: renderer.node, dispose: () => renderer.dispose() };
}

function asText(data: MimeBundle): string {
  const own = text(data['text/plain']) ?? text(data['text/latex']) ?? text(data['text/html']);
  const other = Object.entries(data).find(([mimeType]) => !/^text\/(plain|latex|html)$/.test(mimeType));
  if (own !== null && (other === undefined || !OBJECT_REPR.test(own))) {
    return bounded(own);
  }
  const [mimeType, value] = other ?? ['', ''];
  if (BINARY.test(mimeType) && text(value) !== null) {
    return `[${reveal(mimeType)}: ${text(value)?.length} characters]`;
  }
  return bounded(reveal(mimeType) + '\n' + (text(value) ?? JSON.stringify(value, undefined, 2)));
}

function bounded(source: string): string {
  return source.length > MAX_TEXT_CHARS ? `${source.slice(0, MAX_TEXT_CHARS)}\n…` : source;
}

/** nbformat has long strings as lists of lines. */
function text(value: MimeBundle[string]): string | null {
  if (typeof value === 'string') {
    return value;
  }
  return Array.isArray(value) && value.every(each => typeof each === 'string') ? value.join('') : null;
}

/** Half a character cannot be encoded. */
function wellFormed(source: string): string {
  return source.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD');
}
