/** The queue: what waits, what a person types about it, and what the server says to the decision. */

import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import { ApiError, messageOf } from '../api/errors';
import type { FeedEvent, IExecution } from '../api/types';
import type { IExecModel } from '../tokens';
import { decide, type Decision } from './calls';
import {
  awaiting,
  type Entries,
  type IEntry,
  isAwaiting,
  isEdited,
  NO_ENTRIES,
  synced,
  withEntry,
  withoutEntry
} from './entries';

export type Outcome = 'approved' | 'edited' | 'rejected' | 'failed';

/** Outlives the widgets that show it, so that nothing typed is lost when these are drawn anew. */
export class ApprovalQueue {
  constructor(private readonly _model: IExecModel) {
    _model.fed.connect((_, event) => this._onEvent(event));
    _model.changed.connect(() => this._sync());
    this._sync();
  }

  /** A value that is never changed: another one takes its place. */
  get entries(): Entries {
    return this._entries;
  }

  get changed(): ISignal<ApprovalQueue, void> {
    return this._changed;
  }

  /** Open an entry for somebody who wants to look at it. */
  want(id: string): void {
    this.open(id, true);
    this._wanted = id;
    this._changed.emit();
  }

  /** Return what somebody wants to look at, once: whoever draws it may begin later. */
  takeWanted(): string | null {
    const wanted = this._wanted;
    this._wanted = null;
    return wanted;
  }

  open(id: string, open: boolean): void {
    this._change(id, { open });
    const entry = this._entries.get(id);
    if (open && entry !== undefined && entry.original === null && !entry.gone) {
      void this._read(id);
    }
  }

  edit(id: string, draft: string | null): void {
    this._change(id, { draft });
  }

  note(id: string, note: string): void {
    this._change(id, { note });
  }

  allowForSession(id: string, forSession: boolean): void {
    this._change(id, { forSession });
  }

  dismiss(id: string): void {
    this._set(withoutEntry(this._entries, id));
  }

  /** Send a decision; what is edited is approved as it was edited. */
  async decide(id: string, approve: boolean): Promise<Outcome> {
    const entry = this._entries.get(id);
    if (entry === undefined || entry.sending || entry.gone) {
      return 'failed';
    }
    if (approve && entry.original === null) {
      return 'failed'; // nobody approves what nobody has seen
    }
    this._change(id, { sending: true, problem: null });
    try {
      await decide(this._model.client, id, decision(entry, approve));
    } catch (error) {
      await this._onRefusal(id, error);
      return 'failed';
    }
    this._settled.add(id);
    this.dismiss(id);
    return !approve ? 'rejected' : isEdited(entry) ? 'edited' : 'approved';
  }

  /** Lists have only the beginning of long code; a person must see all of it. */
  private async _read(id: string): Promise<void> {
    try {
      const { code } = await this._model.client.execution(id);
      this._change(id, { original: code, problem: null });
    } catch (error) {
      this._change(id, { problem: messageOf(error) });
    }
  }

  private async _onRefusal(id: string, error: unknown): Promise<void> {
    const refused = error instanceof ApiError && (error.status === 409 || error.status === 404);
    const now = refused ? await this._now(id) : undefined;
    if (now === undefined) {
      this._change(id, { sending: false, problem: messageOf(error) });
    } else if (now === null) {
      this._settled.add(id);
      this._change(id, { sending: false, gone: true, problem: messageOf(error) });
    } else if (isAwaiting(now)) {
      this._change(id, { sending: false, problem: messageOf(error) });
    } else {
      this._settled.add(id);
      this._change(id, { sending: false, gone: true, execution: now });
    }
    this._sync();
  }

  /** How it is now; null if it is no more, undefined if that cannot be found out. */
  private async _now(id: string): Promise<IExecution | null | undefined> {
    try {
      return await this._model.client.execution(id);
    } catch (error) {
      return error instanceof ApiError && error.status === 404 ? null : undefined;
    }
  }

  private _onEvent(event: FeedEvent): void {
    if (event.type === 'execution' && !isAwaiting(event.execution)) {
      this._settled.delete(event.execution.id);
      // A person who has typed something about it sees the decision and its author.
      this._change(event.execution.id, { execution: event.execution });
    }
  }

  private _sync(): void {
    const waiting = awaiting(this._model.state);
    const before = this._entries;
    this._set(synced(before, waiting, this._settled));
    const [only, ...others] = this._entries.keys();
    if (only !== undefined && others.length === 0 && !before.has(only)) {
      this.open(only, true);
    }
  }

  private _change(id: string, changes: Partial<IEntry>): void {
    this._set(withEntry(this._entries, id, changes));
  }

  private _set(entries: Entries): void {
    if (entries !== this._entries) {
      this._entries = entries;
      this._changed.emit();
    }
  }

  private _entries: Entries = NO_ENTRIES;
  /** Decided about, though the feed may not have said so yet. */
  private readonly _settled = new Set<string>();
  private readonly _changed = new Signal<this, void>(this);
  private _wanted: string | null = null;
}

/** Code goes along only if it is another: what the server has is what the agent has sent, to the last byte. */
function decision(entry: IEntry, approve: boolean): Decision {
  const reason = entry.note.trim();
  if (!approve) {
    return { decision: 'reject', reason };
  }
  return {
    decision: 'approve',
    reason,
    ...(entry.draft !== null && isEdited(entry) ? { code: entry.draft } : {}),
    ...(entry.forSession ? { for_session: true } : {})
  };
}
