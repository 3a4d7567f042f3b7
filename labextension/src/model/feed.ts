/** Keeps one connection to the change feed, and says what comes over it. */

import type { ExecClient } from '../api/client';
import { messageOf, troubleOf } from '../api/errors';
import type { FeedEvent } from '../api/types';
import { delaySeconds, restartDelaySeconds } from './backoff';
import type { Connection } from './state';

/** A browser allows six connections to a server in all its tabs together: one that nobody sees gives its own back. */
export const HIDDEN_SECONDS = 30;

/** A connection that lasted for less did not work: a proxy that takes and cuts it is not asked at once again. */
const SETTLED_MS = 5000;

export interface IFeedListener {
  /** The next event is read when this is done, so nothing overtakes what `reset` asks for. */
  event(event: FeedEvent): Promise<void> | void;
  connection(connection: Connection): void;
}

export class Feed {
  constructor(
    private readonly _client: ExecClient,
    private readonly _listener: IFeedListener
  ) {
    document.addEventListener('visibilitychange', this._onVisibility);
    window.addEventListener('focus', this._onReturn);
    window.addEventListener('online', this._onReturn);
  }

  start(): void {
    if (this._running === null && !this._disposed) {
      const running = new AbortController();
      this._running = running;
      void this._run(running.signal);
    }
  }

  stop(): void {
    this._running?.abort();
    this._running = null;
  }

  /** Do not wait any longer for the next attempt. */
  retry(): void {
    this.stop();
    this._attempt = 0;
    this._listener.connection({ status: 'connecting' });
    this.start();
  }

  dispose(): void {
    this._disposed = true;
    this.stop();
    window.clearTimeout(this._hiding);
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.removeEventListener('focus', this._onReturn);
    window.removeEventListener('online', this._onReturn);
  }

  private async _run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      let failure: unknown = new Error('The server has closed the connection.');
      try {
        await this._follow(signal);
      } catch (error) {
        failure = error;
      }
      if (signal.aborted) {
        return;
      }
      const settled = this._liveSince !== null && performance.now() - this._liveSince >= SETTLED_MS;
      this._attempt = settled ? 1 : this._attempt + 1;
      const trouble = troubleOf(failure);
      this._listener.connection({
        status: 'waiting',
        trouble,
        message: messageOf(failure),
        attempt: this._attempt
      });
      const random = Math.random();
      const seconds =
        trouble === 'policies' ? restartDelaySeconds(random) : delaySeconds(this._attempt, random);
      await this._pause(seconds, signal);
    }
  }

  private async _follow(signal: AbortSignal): Promise<void> {
    const resumed = this._last !== null;
    this._liveSince = null;
    const live = (): void => {
      this._liveSince = performance.now();
      this._listener.connection({ status: 'live' });
    };
    for await (const { id, event } of this._client.feed(this._last, signal, () => resumed && live())) {
      if (signal.aborted) {
        return;
      }
      await this._listener.event(event);
      if (signal.aborted) {
        return; // another connection may be further on
      }
      // Only now: what failed halfway is sent again.
      this._last = id ?? this._last;
      if (this._liveSince === null || event.type === 'reset') {
        live();
      }
    }
  }

  private readonly _onVisibility = (): void => {
    window.clearTimeout(this._hiding);
    if (document.visibilityState === 'hidden') {
      this._hiding = window.setTimeout(() => this.stop(), HIDDEN_SECONDS * 1000);
    } else {
      this.start();
      this._onReturn();
    }
  };

  /** A person is back, or the network: the next attempt is due now. */
  private readonly _onReturn = (): void => this._hurry?.();

  private _pause(seconds: number, signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const done = (): void => {
        window.clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = window.setTimeout(done, seconds * 1000);
      signal.addEventListener('abort', done);
      this._hurry = done;
    });
  }

  private _running: AbortController | null = null;
  private _last: string | null = null;
  private _attempt = 0;
  private _liveSince: number | null = null;
  private _hiding: number | undefined;
  private _disposed = false;
  /** Ends a pause; does nothing after it. */
  private _hurry: (() => void) | null = null;
}
