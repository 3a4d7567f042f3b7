/** Tokens of this extension's services, by which other extensions ask for them, and their interfaces. */

import { Token } from '@lumino/coreutils';
import type { IObservableDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type { ExecClient } from './api/client';
import type { FeedEvent } from './api/types';
import type { IExecState } from './model/state';

/** Sessions and runs of agents on this server, kept up to date by the server's change feed. */
export interface IExecModel extends IObservableDisposable {
  readonly client: ExecClient;

  /** A value that is never changed: another one takes its place. */
  readonly state: IExecState;

  /** `state` is another one; at most some times a second. */
  readonly changed: ISignal<IExecModel, void>;

  /** Each event of the feed, once `state` has it. After `reset`, everything has been listed again. */
  readonly fed: ISignal<IExecModel, FeedEvent>;

  /** Keep a session's executions in `state.executions` until the returned function is called. */
  watch(sessionId: string): () => void;

  /** List earlier executions of a session that is watched, before those that `state.executions` has. */
  earlier(sessionId: string): Promise<void>;

  /** Have what the kernels of sessions use measured, for `state.memory`: the feed does not tell it. */
  measure(): Promise<void>;

  /** True lists sessions that have ended, too. */
  listEnded(ended: boolean): Promise<void>;

  /** Try to connect now, instead of when the next attempt is due. */
  retry(): void;
}

export const IExecModel = new Token<IExecModel>(
  '@jupyter-exec-ext/labextension:IExecModel',
  'The sessions and executions of agents on this server, kept up to date.'
);
