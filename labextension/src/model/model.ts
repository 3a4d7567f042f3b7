/** The one model that everything on the page shows. */

import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { ExecClient } from '../api/client';
import { ApiError } from '../api/errors';
import type { FeedEvent } from '../api/types';
import type { IExecModel } from '../tokens';
import { Feed } from './feed';
import { type Change, EMPTY, type IExecState, reduce } from './state';

/** A burst of events is one change of what is shown. */
const COALESCE_SECONDS = 0.05;

/** How many of a session's executions are listed at a time. */
const LISTED_EXECUTIONS = 50;

export class ExecModel implements IExecModel {
  /** Follows the server from when `ready` is. */
  constructor(
    readonly client: ExecClient,
    ready: Promise<unknown> = Promise.resolve()
  ) {
    this._feed = new Feed(client, {
      event: event => this._onEvent(event),
      connection: connection => this._apply({ type: 'connection', connection })
    });
    void ready.then(() => this._feed.start());
  }

  get state(): IExecState {
    return this._state;
  }

  get changed(): ISignal<IExecModel, void> {
    return this._changed;
  }

  get fed(): ISignal<IExecModel, FeedEvent> {
    return this._fed;
  }

  get disposed(): ISignal<this, void> {
    return this._disposed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    window.clearTimeout(this._emitting);
    this._feed.dispose();
    this._disposed.emit();
    Signal.clearData(this);
  }

  watch(sessionId: string): () => void {
    this._watched.set(sessionId, (this._watched.get(sessionId) ?? 0) + 1);
    if (!this._state.executions.has(sessionId)) {
      void this._list(sessionId);
    }
    let watching = true;
    return () => {
      if (!watching) {
        return;
      }
      watching = false;
      const others = (this._watched.get(sessionId) ?? 1) - 1;
      if (others > 0) {
        this._watched.set(sessionId, others);
      } else {
        this._watched.delete(sessionId);
        this._apply({ type: 'forget', sessionId });
      }
    };
  }

  async earlier(sessionId: string): Promise<void> {
    const executions = this._state.executions.get(sessionId) ?? [];
    const first = executions[executions.length - 1];
    if (first === undefined || this._state.whole.has(sessionId) || this._earlier.has(sessionId)) {
      return;
    }
    this._earlier.add(sessionId);
    try {
      const change = await this._executions(sessionId, first.id);
      const now = this._state.executions.get(sessionId) ?? [];
      // A list that was read anew meanwhile does not end where these begin.
      if (now[now.length - 1]?.id === first.id) {
        this._apply(change);
      }
    } finally {
      this._earlier.delete(sessionId);
    }
  }

  async measure(): Promise<void> {
    if (this._measuring || this._state.connection.status !== 'live') {
      return;
    }
    this._measuring = true;
    try {
      this._apply({ type: 'memory', memory: await this.client.memory() });
    } finally {
      this._measuring = false;
    }
  }

  async listEnded(ended: boolean): Promise<void> {
    this._withEnded = ended;
    if (ended !== this._state.withEnded && this._state.info !== null) {
      await this._snapshot();
    }
  }

  retry(): void {
    this._feed.retry();
  }

  private async _onEvent(event: FeedEvent): Promise<void> {
    this._readings.forEach(since => since.push(event));
    if (event.type === 'reset') {
      await this._snapshot();
    } else {
      this._apply(event);
    }
    this._fed.emit(event);
  }

  private async _snapshot(): Promise<void> {
    let withEnded: boolean;
    do {
      withEnded = this._withEnded;
      await this._read(this._everything(withEnded));
    } while (withEnded !== this._withEnded); // somebody has asked for the others meanwhile
    await Promise.all([...this._watched.keys()].map(id => this._list(id)));
  }

  private async _everything(withEnded: boolean): Promise<Change> {
    const [info, sessions, tokens, grants, approvals] = await Promise.all([
      this.client.info(),
      this.client.sessions(withEnded),
      unlessRefused(this.client.tokens(), []),
      unlessRefused(this.client.grants(), []),
      unlessRefused(this.client.approvals(), [])
    ]);
    return { type: 'snapshot', info, sessions, tokens, grants, approvals, withEnded };
  }

  /** Apply what the server is asked for; what the feed says meanwhile may be newer, and is applied again after it. */
  private async _read(answer: Promise<Change>): Promise<void> {
    const since: FeedEvent[] = [];
    this._readings.add(since);
    try {
      this._apply(await answer);
      since.forEach(event => this._apply(event));
    } finally {
      this._readings.delete(since);
    }
  }

  private async _list(sessionId: string): Promise<void> {
    try {
      await this._read(this._executions(sessionId));
    } catch (error) {
      // The connection's own trouble is shown for all; what is left is a session that is no more.
      console.debug(`The executions of session ${sessionId} could not be listed.`, error);
      if (error instanceof ApiError && this._watched.has(sessionId)) {
        this._apply({ type: 'executions', sessionId, executions: [], whole: true });
      }
    }
  }

  private async _executions(sessionId: string, before?: string): Promise<Change> {
    const executions = await this.client.executions(sessionId, LISTED_EXECUTIONS, before);
    const whole = executions.length < LISTED_EXECUTIONS;
    return this._watched.has(sessionId)
      ? { type: 'executions', sessionId, executions, whole, earlier: before !== undefined }
      : { type: 'forget', sessionId };
  }

  private _apply(change: Change): void {
    const next = reduce(this._state, change);
    if (next === this._state || this._isDisposed) {
      return;
    }
    this._state = next;
    this._emitting ??= window.setTimeout(() => {
      this._emitting = undefined;
      this._changed.emit();
    }, COALESCE_SECONDS * 1000);
  }

  private readonly _feed: Feed;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _fed = new Signal<this, FeedEvent>(this);
  private readonly _disposed = new Signal<this, void>(this);
  /** How many look at the executions of each session. */
  private readonly _watched = new Map<string, number>();
  /** The sessions whose earlier executions are just asked for. */
  private readonly _earlier = new Set<string>();
  /** Events of the feed since each request that is not answered yet. */
  private readonly _readings = new Set<FeedEvent[]>();
  private _state: IExecState = EMPTY;
  private _withEnded = false;
  private _measuring = false;
  private _emitting: number | undefined;
  private _isDisposed = false;
}

/** Return nothing for a list that the caller may not read. */
async function unlessRefused<T>(answer: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) {
      return otherwise;
    }
    throw error;
  }
}
