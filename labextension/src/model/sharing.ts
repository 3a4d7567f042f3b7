/** Tokens that share a person's kernel, and the code that they run in it. Pure. */

import type { IExecution, IGrant, ISession, IToken } from '../api/types';
import type { IExecState } from './state';
import { isAlive } from './view';

export interface ISharing {
  /** The active ones of this kernel. */
  readonly grants: readonly IGrant[];
  /** Those that are attached to it, by a grant or by a right of their own. */
  readonly sessions: readonly ISession[];
  /** Code that one of them runs. */
  readonly running: IExecution | null;
}

export function sharing(state: IExecState, kernelId: string | null): ISharing {
  const grants = [...state.grants.values()].filter(each => each.kernel_id === kernelId);
  const sessions = [...state.sessions.values()].filter(
    each => each.attached && each.kernel_id === kernelId && isAlive(each)
  );
  const ids = new Set(sessions.map(each => each.id));
  const running =
    [...state.open.values()].find(each => each.state === 'running' && ids.has(each.session_id)) ?? null;
  return { grants, sessions, running };
}

export function isShared({ grants, sessions }: ISharing): boolean {
  return grants.length + sessions.length > 0;
}

/** Return the token of a grant; null where tokens may not be read. */
export function tokenOf(state: IExecState, grant: IGrant): IToken | null {
  return [...state.tokens.values()].find(each => each.id === grant.token_id) ?? null;
}
