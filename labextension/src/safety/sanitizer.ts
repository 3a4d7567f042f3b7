/**
 * HTML of agents, without anything that acts: no scripts, no commands of JupyterLab's, no requests, no disguise.
 *
 * JupyterLab's sanitizer removes what could run. It leaves pictures from elsewhere, which would tell their server who
 * looks, and classes and ids, with which a page can be made to look like JupyterLab's own. What is left after it goes
 * through a list of what is allowed, in a document in which nothing is loaded.
 */

import { Sanitizer } from '@jupyterlab/apputils';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { reveal } from './text';

const TAGS = new Set(
  (
    'A ABBR B BLOCKQUOTE BR CAPTION CENTER CITE CODE COL COLGROUP DD DEL DETAILS DFN DIV DL DT EM FIGCAPTION FIGURE ' +
    'FONT H1 H2 H3 H4 H5 H6 HR I IMG INS KBD LI MARK OL P PRE Q S SAMP SMALL SPAN STRIKE STRONG SUB SUMMARY SUP ' +
    'TABLE TBODY TD TFOOT TH THEAD TIME TR TT U UL VAR WBR'
  ).split(' ')
);

const ATTRIBUTES = new Set(
  'align alt colspan dir height lang open reversed rowspan scope span start title valign width'.split(' ')
);

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp|bmp);base64,[A-Za-z0-9+/=\s]*$/i;
const STYLE =
  /^(?:color|background-color|font-weight|font-style|font-family|font-size|text-align|text-decoration|vertical-align|white-space|width|height|border(?:-[a-z]+)*|padding(?:-[a-z]+)*)$/;
const PLAIN_VALUE = /^[\w\s#%.,+"'()-]*$/;
// Only from where a word begins: else each letter of a long one is a place to look from.
const FUNCTION = /(?<![\w-])([\w-]+)\s*\(/g;
const COLOUR_FUNCTIONS = new Set(['rgb', 'rgba', 'hsl', 'hsla']);
const COLOUR_CLASS = /^ansi-[a-z-]+$/;

/** A sanitizer for `RenderMimeRegistry`. */
export class StrictSanitizer implements IRenderMime.ISanitizer {
  sanitize(dirty: string, options?: IRenderMime.ISanitizerOptions): string {
    return strict(this._core.sanitize(dirty, options));
  }

  /** Text is no place for links: what they say need not be where they go. */
  getAutolink(): boolean {
    return false;
  }

  readonly allowNamedProperties = false;
  readonly allowCommandLinker = false;

  private readonly _core = new Sanitizer();
}

/** Return what of some HTML is on the list. */
export function strict(html: string): string {
  const body = new DOMParser().parseFromString(`<body>${html}</body>`, 'text/html').body;
  for (const element of [...body.querySelectorAll('*')]) {
    if (!TAGS.has(element.tagName) || element.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
      // Text of what is unknown may be code; it is shown as the text that it is.
      element.replaceWith(body.ownerDocument.createTextNode(element.textContent ?? ''));
      continue;
    }
    for (const attribute of [...element.attributes]) {
      const value = allowed(element.tagName, attribute.name, attribute.value);
      if (value === null) {
        element.removeAttribute(attribute.name);
      } else if (value !== attribute.value) {
        element.setAttribute(attribute.name, value);
      }
    }
    if (/^H[1-6]$/.test(element.tagName)) {
      // No headings of the page, by which people find their way in it.
      element.setAttribute('role', 'presentation');
    }
    if (element.tagName === 'TH' && element.textContent === '') {
      const cell = body.ownerDocument.createElement('td');
      [...element.attributes].forEach(({ name, value }) => cell.setAttribute(name, value));
      element.replaceWith(cell);
    }
    if (element.tagName === 'A' && element.hasAttribute('href')) {
      element.setAttribute('target', '_blank');
      element.setAttribute('rel', 'noopener noreferrer');
      element.setAttribute('title', element.getAttribute('href') ?? '');
    }
    if (element.tagName === 'IMG' && !element.hasAttribute('src')) {
      element.replaceWith(body.ownerDocument.createTextNode(`[${element.getAttribute('alt') || 'image'}]`));
    }
  }
  revealText(body);
  return body.innerHTML;
}

/** Return the value that an attribute may have, or null if it may not be there. */
function allowed(tag: string, name: string, value: string): string | null {
  switch (name) {
    case 'href':
      return tag === 'A' && isElsewhere(value) ? value : null;
    case 'src':
      return tag === 'IMG' && PICTURE.test(value) ? value : null;
    case 'style':
      return styles(value);
    case 'class':
      return (
        value
          .split(/\s+/)
          .filter(each => COLOUR_CLASS.test(each))
          .join(' ') || null
      );
    default:
      return ATTRIBUTES.has(name) ? reveal(value) : null;
  }
}

/** Links lead to other sites: on this one, a click could do something in the name of who clicks. */
function isElsewhere(href: string): boolean {
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return false;
  }
  return (
    ['http:', 'https:'].includes(url.protocol) && url.host !== window.location.host && url.username === ''
  );
}

function styles(value: string): string | null {
  const kept = value
    .split(';')
    .map(declaration => declaration.split(':').map(each => each.trim()))
    .filter(([name, text, ...more]) => more.length === 0 && name && text && isPlain(name.toLowerCase(), text))
    .map(([name, text]) => `${name}: ${text}`);
  return kept.join('; ') || null;
}

function isPlain(name: string, text: string): boolean {
  const functions = [...text.matchAll(FUNCTION)].map(match => (match[1] ?? '').toLowerCase());
  return STYLE.test(name) && PLAIN_VALUE.test(text) && functions.every(each => COLOUR_FUNCTIONS.has(each));
}

function revealText(root: Node): void {
  const walker = (root.ownerDocument as Document).createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const text = node.nodeValue ?? '';
    const shown = reveal(text);
    if (shown !== text) {
      node.nodeValue = shown;
    }
  }
}
