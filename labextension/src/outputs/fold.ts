/** Outputs to show of an execution's event log, in bounded memory. Pure. */

import type { IErrorInfo, IExecution, INotebookOutput, MimeBundle, OutputEvent } from '../api/types';

/** Of a stream, its end is kept. */
export const MAX_STREAM_CHARS = 32_000;
/** Of many outputs, the last ones. */
export const MAX_ITEMS = 100;
/** Of a value that is shown; a larger one is named. */
export const MAX_VALUE_CHARS = 8_000_000;
/** Of values together. */
export const MAX_TOTAL_CHARS = 24_000_000;

export type Item = { readonly key: number } & (
  | {
      readonly kind: 'stream';
      readonly name: 'stdout' | 'stderr';
      readonly text: string;
      readonly cutChars: number;
    }
  | {
      readonly kind: 'value';
      readonly data: MimeBundle;
      readonly chars: number;
      readonly displayId: string | null;
    }
  | { readonly kind: 'error'; readonly error: IErrorInfo }
);

export interface IOutputs {
  readonly items: readonly Item[];
  /** How many items are no longer there. */
  readonly omitted: number;
  /** Of the newest event. */
  readonly seq: number;
  readonly input: { readonly prompt: string; readonly password: boolean } | null;
  readonly unresponsive: string | null;
  /** The finished record. */
  readonly end: IExecution | null;
  readonly clearNext: boolean;
}

export const NO_OUTPUTS: IOutputs = {
  items: [],
  omitted: 0,
  seq: 0,
  input: null,
  unresponsive: null,
  end: null,
  clearNext: false
};

/** Return the outputs after some more events. */
export function fold(outputs: IOutputs, events: readonly OutputEvent[]): IOutputs {
  return events.reduce(step, outputs);
}

/** Return the outputs of a record whose log is no longer kept. */
export function ofRecord(execution: IExecution, outputs: readonly INotebookOutput[]): IOutputs {
  let seq = 0;
  const events = outputs.map(output => eventOf(output, (seq += 1)));
  return { ...fold(NO_OUTPUTS, events), end: execution };
}

function step(outputs: IOutputs, event: OutputEvent): IOutputs {
  const next = { ...outputs, seq: event.seq };
  switch (event.type) {
    case 'stream':
      return withText(cleared(next), event.name, event.text, event.seq);
    case 'display':
      if (event.update && event.display_id !== null) {
        return { ...next, items: updated(next.items, event.display_id, event.data) };
      }
      return withValue(cleared(next), event.data, event.display_id, event.seq);
    case 'result':
      return withValue(cleared(next), event.data, null, event.seq);
    case 'error': {
      const error = {
        name: event.name,
        value: event.value,
        traceback: tail(event.coloured_traceback || event.traceback, MAX_STREAM_CHARS)
      };
      return withItem(cleared(next), { key: event.seq, kind: 'error', error });
    }
    case 'clear':
      return event.wait ? { ...next, clearNext: true } : cleared({ ...next, clearNext: true });
    case 'input_request':
      return { ...next, input: { prompt: event.prompt, password: event.password } };
    case 'state':
      return { ...next, input: null };
    case 'session_state_lost':
      return withText(
        cleared(next),
        'stderr',
        `State lost: ${event.reason} before this ran. Variables and imports from before are gone.\n`,
        event.seq
      );
    case 'unresponsive':
      return { ...next, unresponsive: event.reason };
    case 'responsive':
      return { ...next, unresponsive: null };
    case 'end':
      return { ...next, end: event.execution, input: null, unresponsive: null };
    default: // files and what was cut are in the record; a newer server may send more
      return next;
  }
}

function cleared(outputs: IOutputs): IOutputs {
  return outputs.clearNext ? { ...outputs, items: [], omitted: 0, clearNext: false } : outputs;
}

function withText(outputs: IOutputs, name: 'stdout' | 'stderr', text: string, seq: number): IOutputs {
  const last = outputs.items[outputs.items.length - 1];
  if (last?.kind !== 'stream' || last.name !== name) {
    const kept = tail(text, MAX_STREAM_CHARS);
    return withItem(outputs, {
      key: seq,
      kind: 'stream',
      name,
      text: kept,
      cutChars: text.length - kept.length
    });
  }
  const whole = last.text + text;
  const kept = tail(whole, MAX_STREAM_CHARS);
  const item = { ...last, text: kept, cutChars: last.cutChars + whole.length - kept.length };
  return { ...outputs, input: null, items: [...outputs.items.slice(0, -1), item] };
}

function withValue(outputs: IOutputs, data: MimeBundle, displayId: string | null, seq: number): IOutputs {
  return withItem(outputs, { key: seq, kind: 'value', displayId, ...bounded(data) });
}

function withItem(outputs: IOutputs, item: Item): IOutputs {
  const items = [...outputs.items, item];
  let first = Math.max(0, items.length - MAX_ITEMS);
  let chars = items.reduce((sum, each) => sum + size(each), 0);
  for (let index = 0; index < items.length - 1 && chars > MAX_TOTAL_CHARS; index += 1) {
    chars -= size(items[index]);
    first = Math.max(first, index + 1);
  }
  return { ...outputs, input: null, items: items.slice(first), omitted: outputs.omitted + first };
}

function updated(items: readonly Item[], displayId: string, data: MimeBundle): readonly Item[] {
  return items.map(item =>
    item.kind === 'value' && item.displayId === displayId ? { ...item, ...bounded(data) } : item
  );
}

/** Leave out what is too large to be shown. */
function bounded(data: MimeBundle): { data: MimeBundle; chars: number } {
  let chars = 0;
  const kept: { [mimeType: string]: MimeBundle[string] } = {};
  for (const [mimeType, value] of Object.entries(data)) {
    const length = typeof value === 'string' ? value.length : JSON.stringify(value ?? null).length;
    if (length <= MAX_VALUE_CHARS) {
      kept[mimeType] = value;
      chars += length;
    } else if (kept['text/plain'] === undefined) {
      kept['text/plain'] = `[${mimeType}: ${length} characters, too large to be shown]`;
    }
  }
  return { data: kept, chars };
}

function size(item: Item | undefined): number {
  return item?.kind === 'value' ? item.chars : 0;
}

/** Return the end of a text, from the beginning of a line if there is one near. */
function tail(text: string, most: number): string {
  if (text.length <= most) {
    return text;
  }
  // A tenth more may go, so that not every further line copies the whole.
  const kept = text.slice(-Math.floor(most * 0.9));
  const line = kept.indexOf('\n');
  return line >= 0 && line < 2000 ? kept.slice(line + 1) : kept.replace(/^[\uDC00-\uDFFF]/, '');
}

function eventOf(output: INotebookOutput, seq: number): OutputEvent {
  switch (output.output_type) {
    case 'stream':
      return { seq, type: 'stream', name: output.name, text: joined(output.text) };
    case 'error':
      return {
        seq,
        type: 'error',
        name: output.ename,
        value: output.evalue,
        traceback: output.traceback.join('\n')
      };
    case 'execute_result':
      return { seq, type: 'result', data: output.data };
    default:
      return { seq, type: 'display', data: output.data, display_id: null, update: false };
  }
}

function joined(text: string | readonly string[]): string {
  return typeof text === 'string' ? text : text.join('');
}
