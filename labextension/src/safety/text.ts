/**
 * Text that agents choose, made safe to look at: what would hide or reorder other text is shown as what it is.
 *
 * Pure. Nothing here makes HTML.
 */

// Controls but tab and line feed; C1; what orders text (bidi); what has no width; separators of lines; tags.
const INVISIBLE =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u061C\u115F\u1160\u17B4\u17B5\u180E\u200B\u200E\u200F\u2028-\u202E\u2060-\u206F\u3164\uFEFF\uFFA0\uFFF9-\uFFFB]|\uDB40[\uDC00-\uDC7F]/g;

// As terminals read them: strings (OSC, DCS, SOS, PM, APC) up to their end, CSI, and two-character sequences. A string
// holds no other one's begin: text of nothing but begins would be searched to its end from each of them.
const STRING_SEQUENCE =
  /(?:\u001B[\]PX^_]|[\u0090\u0098\u009D-\u009F])[^\u0007\u001B\u0090\u0098\u009C-\u009F]*(?:\u0007|\u001B\\|\u009C|$)/g;
const CONTROL_SEQUENCE = /(?:\u001B\[|\u009B)[0-?]*[ -/]*([@-~]|$)/g;
const SHORT_SEQUENCE = /\u001B(?!\[)[ -/]*[0-~]?/g;
const COLOUR = /^\u001B\[[0-9;]*m$/;
const COLOURS = /(\u001B\[[0-9;]*m)/;

/** Show what is invisible or reorders text by its number, such as `‹U+202E›`. */
export function reveal(text: string): string {
  return text.replace(/\r\n?/g, '\n').replace(INVISIBLE, character => {
    const number = character.codePointAt(0) ?? 0;
    return `‹U+${number.toString(16).toUpperCase().padStart(4, '0')}›`;
  });
}

/** The same for a name: one line, and no longer than `most` characters. */
export function oneLine(text: string, most = 200): string {
  const line = reveal(text.slice(0, most * 4))
    .replace(/\s+/g, ' ')
    .trim();
  return line.length > most || text.length > most * 4 ? `${line.slice(0, most - 1)}…` : line;
}

/** Remove what only a terminal understands, links (OSC 8) among it; colours stay if `colours` is true. */
export function terminalText(text: string, colours: boolean): string {
  const kept = text
    .replace(STRING_SEQUENCE, '')
    .replace(CONTROL_SEQUENCE, sequence => (colours && COLOUR.test(sequence) ? sequence : ''))
    .replace(SHORT_SEQUENCE, '');
  if (!colours) {
    return reveal(kept);
  }
  return kept
    .split(COLOURS)
    .map((part, index) => (index % 2 === 1 ? part : reveal(part)))
    .join('');
}

/** Apply carriage returns, with which progress bars write over their own line. */
export function overwritten(text: string): string {
  if (!text.includes('\r')) {
    return text;
  }
  return text
    .replace(/(?<!\r)\r+\n/g, '\n') // not from each of many in a row
    .split('\n')
    .map(line => line.replace(/(?<!\r)\r+$/, '').replace(/^[^]*\r/, ''))
    .join('\n');
}
