/** Executions that wait for a person, with the person's input about them: pure. */

import type { IExecution } from '../api/types';
import type { IExecState } from '../model/state';
import { unixLines } from './diff';

export interface IEntry {
  /** Of lists: its code may be cut. */
  readonly execution: IExecution;
  /** All of the code, as it was sent; null until it was read. */
  readonly original: string | null;
  /** The code as the person has edited it; null for no edits. */
  readonly draft: string | null;
  /** Note to the agent. */
  readonly note: string;
  /** True approves later code of the same kinds, too. */
  readonly forSession: boolean;
  readonly open: boolean;
  /** True while a decision is on its way. */
  readonly sending: boolean;
  readonly problem: string | null;
  /** It does not wait any more, and is kept for what was typed or is to be read. */
  readonly gone: boolean;
}

export type Entries = ReadonlyMap<string, IEntry>;

export const NO_ENTRIES: Entries = new Map();

/** Return what waits, the oldest first. */
export function awaiting(state: IExecState): readonly IExecution[] {
  return [...state.open.values()].filter(isAwaiting).sort(oldestFirst);
}

export function isAwaiting(execution: IExecution): boolean {
  return execution.state === 'awaiting_approval';
}

/** Return the kinds that can be approved for the session; a new import is approved with the code that has it. */
export function kindsOf(entry: IEntry): readonly string[] {
  const kinds = (entry.execution.approval?.findings ?? []).map(each => each.kind);
  return [...new Set(kinds)].filter(kind => kind !== '' && !kind.startsWith('new '));
}

export function isEdited(entry: IEntry): boolean {
  return entry.draft !== null && entry.original !== null && entry.draft !== unixLines(entry.original);
}

/**
 * Return the entries for what waits now; the same object if nothing has changed.
 *
 * @param settled What is known to wait no more, though the list may not know it yet.
 */
export function synced(
  entries: Entries,
  waiting: readonly IExecution[],
  settled: ReadonlySet<string>
): Entries {
  const waits = new Set(waiting.map(each => each.id));
  const next: IEntry[] = [];
  for (const entry of entries.values()) {
    const { id } = entry.execution;
    if (entry.gone || entry.sending) {
      next.push(entry);
    } else if (!waits.has(id) && (isEdited(entry) || entry.note !== '')) {
      next.push({ ...entry, gone: true });
    }
  }
  for (const execution of waiting) {
    const entry = entries.get(execution.id);
    if (entry !== undefined && !entry.gone && !entry.sending) {
      next.push(entry.execution === execution ? entry : { ...entry, execution });
    } else if (entry === undefined && !settled.has(execution.id)) {
      next.push(fresh(execution));
    }
  }
  next.sort((a, b) => oldestFirst(a.execution, b.execution));
  const known = [...entries.values()];
  return next.length === known.length && next.every((entry, at) => entry === known[at]) ? entries : map(next);
}

export function withEntry(entries: Entries, id: string, changes: Partial<IEntry>): Entries {
  const entry = entries.get(id);
  return entry === undefined ? entries : new Map(entries).set(id, { ...entry, ...changes });
}

export function withoutEntry(entries: Entries, id: string): Entries {
  const next = new Map(entries);
  next.delete(id);
  return next;
}

function fresh(execution: IExecution): IEntry {
  return {
    execution,
    original: null,
    draft: null,
    note: '',
    forSession: false,
    open: false,
    sending: false,
    problem: null,
    gone: false
  };
}

function map(entries: readonly IEntry[]): Entries {
  return new Map(entries.map(entry => [entry.execution.id, entry]));
}

function oldestFirst(a: IExecution, b: IExecution): number {
  return a.created_at.localeCompare(b.created_at) || a.id.localeCompare(b.id);
}
