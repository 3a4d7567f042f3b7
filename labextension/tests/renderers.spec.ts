import { describe, expect, it } from 'vitest';

import { chosen, plain, render, strictRenderers } from '../src/outputs/renderers';
import { markdownToHtml } from '../src/outputs/markdown';
import { until } from './helpers';

const STDOUT = 'application/vnd.jupyter.stdout';

describe('chosen', () => {
  it('prefers what shows most', () => {
    expect(chosen({ 'text/plain': 'p', 'text/html': '<b>h</b>' }).mimeType).toBe('text/html');
    expect(chosen({ 'text/plain': 'p', 'image/png': 'AAAA' }).mimeType).toBe('image/png');
    expect(chosen({ 'text/plain': 'p', 'text/markdown': ['a\n', 'b'] }).data).toEqual({
      'text/markdown': 'a\nb'
    });
  });

  it('shows as text what would run or load something, and what is no picture', () => {
    for (const mimeType of [
      'application/javascript',
      'application/vnd.vega.v5+json',
      'application/geo+json',
      'x/y'
    ]) {
      expect(chosen({ [mimeType]: 'x', 'text/plain': 'p' })).toEqual(plain('p'));
      expect(chosen({ [mimeType]: { url: 'https://evil.test' } }).mimeType).toBe(STDOUT);
    }
    expect(chosen({ 'image/png': '"><img src=x>', 'text/plain': 'p' })).toEqual(plain('p'));
  });

  it('shows the value where its text is only the name of an object', () => {
    for (const [mimeType, value] of [
      ['application/vnd.vegalite.v5+json', { mark: 'bar' }],
      ['application/geo+json', { type: 'Point' }],
      ['application/json', [1]],
      ['text/csv', 'a,b'],
      ['x/y', ['a', 'b']]
    ] as const) {
      const shown = JSON.stringify(chosen({ 'text/plain': '<Thing object at 0x1>', [mimeType]: value }).data);
      expect(shown).toContain(mimeType);
      expect(shown).not.toContain('Thing');
    }
    expect(chosen({ 'text/plain': '<Thing>' })).toEqual(plain('<Thing>'));
    expect(chosen({ 'audio/wav': 'UklGRg==', 'text/plain': '<Audio>' })).toEqual(
      plain('[audio/wav: 8 characters]')
    );
  });

  it('shows very long markup as text', () => {
    expect(chosen({ 'text/html': '<b>'.repeat(200_000), 'text/plain': 'p' })).toEqual(plain('p'));
    expect(chosen({ 'text/markdown': '[a]('.repeat(10_000), 'text/plain': 'p' })).toEqual(plain('p'));
  });

  it('bounds text', () => {
    expect(JSON.stringify(chosen({ 'text/plain': 'x'.repeat(1_000_000) }).data).length).toBeLessThan(70_000);
  });
});

describe('render', () => {
  const renderers = strictRenderers();
  const shown = async (data: Record<string, string>): Promise<string> => {
    const { node, dispose } = render(renderers, chosen(data), 'label');
    document.body.replaceChildren(node);
    if (node.tagName !== 'IMG') {
      await until(() => node.childNodes.length > 0);
    }
    const html = node.outerHTML;
    dispose();
    return html;
  };

  it('shows HTML and Markdown without what acts', async () => {
    const hostile = '<b>x</b><img src="https://evil.test/p.png"><script>alert(1)</script>';
    for (const mimeType of ['text/html', 'text/markdown']) {
      const html = await shown({ [mimeType]: hostile });
      expect(html).toContain('<b>x</b>');
      expect(html).not.toMatch(/evil|<script|<img|<button/);
    }
  });

  it.each(['*a <b> ', '> '])(
    'shows Markdown as text that cannot be parsed in time or depth: %s',
    async piece => {
      const source = piece.repeat(18_000 / piece.length);
      const html = await markdownToHtml(source, 0.1);
      const holder = document.implementation.createHTMLDocument().body;
      holder.innerHTML = html;
      expect(holder.children.length).toBe(1);
      expect(holder.querySelector('pre')?.textContent).toBe(source);
      expect(await shown({ 'text/markdown': '*a*' })).toContain('<em>a</em>');
    }
  );

  it('gives headings no links into the page', async () => {
    for (const data of [{ 'text/markdown': '# a b' }, { 'text/html': '<h1>a b</h1>' }]) {
      const { node, dispose } = render(renderers, chosen(data), 'label');
      await until(() => node.querySelector('h1') !== null);
      await until(() => node.querySelector('a') === null);
      expect(node.textContent?.trim()).toBe('a b');
      dispose();
    }
  });

  it('shows SVG as a picture, in which nothing runs', async () => {
    const html = await shown({ 'image/svg+xml': '<svg onload="alert(1)"></svg>\uD800' });
    expect(html).toMatch(/^<img alt="label" src="data:image\/svg\+xml;charset=utf-8,%3Csvg/);
  });

  it('shows text in colours, and as text', async () => {
    const html = await shown({ 'text/plain': '\u001B[31m<b>red</b>\u001B[0m https://evil.test' });
    expect(html).toContain('ansi-red-fg');
    expect(html).toContain('&lt;b&gt;');
    expect(html).not.toContain('<a ');
  });
});
