import { describe, expect, it } from 'vitest';

import { strict, StrictSanitizer } from '../src/safety/sanitizer';
import { oneLine, overwritten, reveal, terminalText } from '../src/safety/text';

describe('reveal', () => {
  it('shows what hides or reorders text', () => {
    expect(reveal('a\u202Eb\u2066c\u200Bd\u001B[31me\u0000')).toBe(
      'a‹U+202E›b‹U+2066›c‹U+200B›d‹U+001B›[31me‹U+0000›'
    );
    expect(reveal('x\u{E0041}y')).toBe('x‹U+E0041›y');
  });

  it('leaves other text as it is', () => {
    const text = 'line\n\ttab é 漢字 👩‍👩‍👧 עברית';
    expect(reveal(text)).toBe(text);
  });

  it('makes a name one line, and no longer than it may be', () => {
    expect(oneLine(' a\n b\r\nc ')).toBe('a b c');
    expect(oneLine('x'.repeat(1_000_000), 10)).toBe(`${'x'.repeat(9)}…`);
  });
});

describe('terminalText', () => {
  it('keeps colours and the words of links, and nothing else that a terminal obeys', () => {
    const link = '\u001B]8;;https://evil.test\u0007click\u001B]8;;\u001B\\';
    expect(terminalText(`\u001B[31mred\u001B[0m ${link}\u001B[2J\u001B[10;5Hx\u001BcY\u009B1mz`, true)).toBe(
      '\u001B[31mred\u001B[0m clickxYz'
    );
    expect(terminalText('\u001B[31mred\u001B[0m', false)).toBe('red');
  });

  it('swallows no more than one line of controls that never end', () => {
    expect(terminalText('a\u001B]8;;x', true)).toBe('a');
    expect(terminalText('a\u001B[', true)).toBe('a');
  });

  it('shows what reorders text in it', () => {
    expect(terminalText('\u001B[1m\u202Etxt\u001B[0m', true)).toBe('\u001B[1m‹U+202E›txt\u001B[0m');
  });
});

describe('overwritten', () => {
  it('has of a progress bar what was written last', () => {
    expect(overwritten('10%\r50%\r100%\r\ndone\n')).toBe('100%\ndone\n');
  });
});

describe('time', () => {
  // What looks on from each character takes longer than the test may.
  const MANY = 100_000;

  it.each([
    [
      'controls that begin strings',
      () => terminalText('\u009D'.repeat(MANY) + '\u001B', true),
      /^(‹U\+009D›)+$/
    ],
    ['carriage returns', () => overwritten('\r'.repeat(MANY) + 'x'), /^x$/],
    ['carriage returns in a line', () => overwritten('x' + '\r'.repeat(MANY) + 'y\n'), /^y\n$/],
    [
      'a word of a style',
      () => strict(`<p style="color: ${'a'.repeat(MANY)}">x</p>`),
      /^<p style="color: a+">x<\/p>$/
    ]
  ])('grows with the length of %s, and not with its square', (_, shown, expected) => {
    expect(expected.test(shown())).toBe(true);
  });
});

describe('strict', () => {
  const HOSTILE = [
    '<img src=x onerror=alert(1)>',
    '<img src="https://evil.test/pixel.png">',
    '<img srcset="https://evil.test/p.png 1x" src="data:image/svg+xml,<svg onload=alert(1)>">',
    '<script>alert(1)</script>',
    '<svg><script>alert(1)</script><image href="https://evil.test/p"/></svg>',
    '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>',
    '<iframe src="https://evil.test"></iframe>',
    '<object data="https://evil.test"></object><embed src="https://evil.test">',
    '<video poster="https://evil.test/p.png" src="https://evil.test/v"></video><audio src="https://evil.test/a"></audio>',
    '<link rel="stylesheet" href="https://evil.test/c.css"><meta http-equiv="refresh" content="0;url=https://evil.test">',
    '<style>@import url(https://evil.test/c.css)</style>',
    '<div style="background: url(https://evil.test/p.png)">a</div>',
    '<div style="background-color: image-set(\'https://evil.test/p.png\' 1x)">a</div>',
    '<div style="color: \\75rl(https://evil.test)">a</div>',
    '<div style="position: fixed; top: 0; left: 0; width: 100vw; height: 100vh">a</div>',
    '<table background="https://evil.test/p.png"><tr><td background="https://evil.test/p.png">a</td></tr></table>',
    '<button data-commandlinker-command="terminal:create-new" data-commandlinker-args="{}">a</button>',
    '<a data-commandlinker-command="terminal:create-new" href="#">a</a>',
    '<a href="javascript:alert(1)">a</a><a href=" java\nscript:alert(1)">a</a><a href="data:text/html,x">a</a>',
    `<a href="${window.location.origin}/logout">a</a><a href="http://user@other.test/">a</a>`,
    '<a href="/logout" ping="https://evil.test">a</a><a href="//evil.test/x">a</a>',
    '<form action="https://evil.test"><input name="password"><button formaction="https://evil.test">a</button></form>',
    '<div class="jp-Dialog lm-Widget" id="main">a</div>',
    '<base href="https://evil.test"><template><img src=x></template><noscript><img src="https://evil.test"></noscript>',
    '<span slot=x contenteditable autofocus onfocus=alert(1) tabindex=0 accesskey=x>a</span>'
  ];

  it.each(HOSTILE)('leaves nothing that acts in %s', html => {
    for (const clean of [strict(html), new StrictSanitizer().sanitize(html)]) {
      const holder = document.implementation.createHTMLDocument().body;
      holder.innerHTML = clean;
      const attributes = [...holder.querySelectorAll('*')].flatMap(each => [...each.attributes]);
      for (const { name, value } of attributes) {
        expect(name).not.toMatch(
          /^on|^data-|^id$|^class$|^name$|^srcset$|^poster$|^background$|^ping$|action$/
        );
        expect(value).not.toMatch(/url|image-set|fixed|script:|svg/);
        expect(['a', 'align', 'colspan', 'style', 'href', 'rel', 'target', 'title', 'alt']).toContain(name);
      }
      expect(
        holder.querySelector('script, svg, math, iframe, form, button, input, style, img, link, meta')
      ).toBeNull();
      expect(holder.querySelector('a[href]')).toBeNull();
    }
  });

  it('keeps tables, pictures that are there, and links to other sites', () => {
    const html =
      '<table border="1"><tbody><tr><td style="color: rgb(1, 2, 3); background-color: #fff">1</td></tr></tbody></table>' +
      '<img src="data:image/png;base64,AAAA" alt="x">';
    expect(strict(html)).toContain('<td style="color: rgb(1, 2, 3); background-color: #fff">1</td>');
    expect(strict(html)).toContain('<img src="data:image/png;base64,AAAA" alt="x">');
    expect(strict('<a href="https://other.test/x">y</a>')).toBe(
      '<a href="https://other.test/x" target="_blank" rel="noopener noreferrer" title="https://other.test/x">y</a>'
    );
  });

  it('gives outputs no headings of the page, and no headers that say nothing', () => {
    expect(strict('<h1>a</h1><table><tbody><tr><th></th><th scope="row">b</th></tr></tbody></table>')).toBe(
      '<h1 role="presentation">a</h1><table><tbody><tr><td></td><th scope="row">b</th></tr></tbody></table>'
    );
  });

  it('keeps the colours of terminals', () => {
    const html = '<span class="ansi-red-fg jp-Dialog">x</span>';
    expect(new StrictSanitizer().sanitize(html, { allowedTags: ['span'] })).toBe(
      '<span class="ansi-red-fg">x</span>'
    );
  });

  it('is the same when it is done twice', () => {
    for (const html of HOSTILE) {
      expect(strict(strict(html))).toBe(strict(html));
    }
  });
});
