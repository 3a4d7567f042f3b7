import { describe, expect, it } from 'vitest';

import type { OutputEvent } from '../src/api/types';
import {
  fold,
  type IOutputs,
  MAX_ITEMS,
  MAX_STREAM_CHARS,
  MAX_TOTAL_CHARS,
  MAX_VALUE_CHARS,
  NO_OUTPUTS,
  ofRecord
} from '../src/outputs/fold';
import { execution } from './helpers';

type Unnumbered = OutputEvent extends infer E ? (E extends OutputEvent ? Omit<E, 'seq'> : never) : never;

function folded(...events: Unnumbered[]): IOutputs {
  return fold(
    NO_OUTPUTS,
    events.map((event, index) => ({ seq: index + 1, ...event }))
  );
}

const out = (text: string): Unnumbered => ({ type: 'stream', name: 'stdout', text });
const show = (text: string, id: string | null = null, update = false): Unnumbered => ({
  type: 'display',
  data: { 'text/plain': text },
  display_id: id,
  update
});
const texts = (outputs: IOutputs): unknown[] =>
  outputs.items.map(item =>
    item.kind === 'stream' ? item.text : item.kind === 'value' ? item.data['text/plain'] : item.error.name
  );

describe('fold', () => {
  it('joins what one stream says in a row', () => {
    expect(
      texts(folded(out('a'), out('b'), { type: 'stream', name: 'stderr', text: 'c' }, out('d')))
    ).toEqual(['ab', 'c', 'd']);
  });

  it('says where the code before is lost', () => {
    expect(texts(folded({ type: 'session_state_lost', reason: 'the kernel was killed' }, out('1')))).toEqual([
      'State lost: the kernel was killed before this ran. Variables and imports from before are gone.\n',
      '1'
    ]);
  });

  it('applies updates and clearing', () => {
    expect(texts(folded(show('1', 'x'), show('2'), show('3', 'x', true)))).toEqual(['3', '2']);
    expect(texts(folded(out('a'), { type: 'clear', wait: false }, out('b')))).toEqual(['b']);
    expect(texts(folded(out('a'), { type: 'clear', wait: true }))).toEqual(['a']);
    expect(texts(folded(out('a'), { type: 'clear', wait: true }, out('b')))).toEqual(['b']);
  });

  it('keeps the end of 50 MB, and counts the rest', () => {
    const line = `${'x'.repeat(99)}\n`;
    let outputs = NO_OUTPUTS;
    for (let seq = 1; seq <= 500; seq += 1) {
      outputs = fold(outputs, [{ seq, type: 'stream', name: 'stdout', text: line.repeat(1000) }]);
    }
    const [item] = outputs.items;
    expect(item).toMatchObject({ kind: 'stream' });
    if (item?.kind === 'stream') {
      expect(item.text.length).toBeLessThanOrEqual(MAX_STREAM_CHARS);
      expect(item.text.startsWith('x'.repeat(99))).toBe(true);
      expect(item.text.length + item.cutChars).toBe(50_000_000);
    }
  });

  it('keeps the last of many outputs', () => {
    const outputs = folded(...Array.from({ length: MAX_ITEMS + 20 }, (_, n) => show(String(n))));
    expect(outputs.items).toHaveLength(MAX_ITEMS);
    expect(outputs.omitted).toBe(20);
    expect(texts(outputs).pop()).toBe(String(MAX_ITEMS + 19));
  });

  it('keeps no more of large values than there is room for, and names one that is too large', () => {
    const large = 'x'.repeat(MAX_TOTAL_CHARS / 4);
    const outputs = folded(...Array.from({ length: 6 }, () => show(large)));
    expect(outputs.items).toHaveLength(4);
    expect(outputs.omitted).toBe(2);
    const huge = folded({ type: 'result', data: { 'image/png': 'x'.repeat(MAX_VALUE_CHARS + 1) } });
    expect(texts(huge)[0]).toMatch(/^\[image\/png: 8000001 characters/);
  });

  it('follows what the code asks for and how it ends', () => {
    const asks = folded({ type: 'input_request', prompt: 'name?', password: false });
    expect(asks.input).toEqual({ prompt: 'name?', password: false });
    expect(fold(asks, [{ seq: 2, type: 'stream', name: 'stdout', text: 'hi' }]).input).toBeNull();
    expect(folded({ type: 'unresponsive', reason: 'stopped' }).unresponsive).toBe('stopped');
    const end = execution('e', { state: 'ok' });
    expect(folded(out('a'), { type: 'end', execution: end }).end).toBe(end);
  });

  it('takes the coloured traceback where there is one', () => {
    const tracebacks = folded(
      {
        type: 'error',
        name: 'E',
        value: 'v',
        traceback: 'red',
        coloured_traceback: '\u001B[31mred\u001B[0m'
      },
      { type: 'error', name: 'E', value: 'v', traceback: 'plain', coloured_traceback: '' },
      { type: 'error', name: 'E', value: 'v', traceback: 'old' }
    ).items.map(item => (item.kind === 'error' ? item.error.traceback : null));
    expect(tracebacks).toEqual(['\u001B[31mred\u001B[0m', 'plain', 'old']);
  });

  it('passes over events that it does not know', () => {
    expect(folded({ type: 'weather' } as unknown as Unnumbered).items).toEqual([]);
  });
});

describe('ofRecord', () => {
  it('reads nbformat outputs', () => {
    const outputs = ofRecord(execution('e'), [
      { output_type: 'stream', name: 'stdout', text: ['a\n', 'b'] },
      { output_type: 'execute_result', data: { 'text/plain': '4' } },
      { output_type: 'error', ename: 'E', evalue: 'v', traceback: ['t'] }
    ]);
    expect(texts(outputs)).toEqual(['a\nb', '4', 'E']);
    expect(outputs.end?.id).toBe('e');
  });
});
