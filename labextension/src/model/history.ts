/** History of a session with checkpoints: which executions led to a state, and which a restore has left. Pure. */

import type { FeedEvent, ICheckpoint, IExecution, IInfo, IRestore, ISession } from '../api/types';
import { isAlive } from './view';

/** Return whether the caller can make checkpoints of a session, as far as the page knows; the server decides. */
export function canCheckpoint(info: IInfo | null, session: ISession): boolean {
  return (
    info !== null &&
    info.caller.scopes.includes('sessions:checkpoint') &&
    (info.limits.max_checkpoints ?? 0) > 0 &&
    isAlive(session) &&
    !session.attached &&
    session.language === 'python' &&
    (session.isolation === 'none' || session.isolation === 'sandbox')
  );
}

/** Return whether the caller can branch a session: there are no branches in a sandbox. */
export function canBranch(info: IInfo | null, session: ISession): boolean {
  return (
    canCheckpoint(info, session) &&
    session.isolation === 'none' &&
    info?.caller.scopes.includes('sessions:create') === true
  );
}

/** Executions of a session as a tree: after a restore, the next one follows the last one before the checkpoint. */
export class HistoryTree {
  /**
   * @param executions The oldest may be missing; the newest first.
   * @param restores The oldest first.
   */
  constructor(executions: readonly IExecution[], restores: readonly IRestore[]) {
    const ids = executions.map(each => each.id).reverse();
    const known = new Set<string | null>([null, ...ids]);
    const waiting = restores.filter(each => known.has(each.before));
    let last: string | null = null;
    for (const id of [null, ...ids]) {
      if (id !== null) {
        this._before.set(id, last);
        last = id;
      }
      // At the moment of a restore, the last execution of the line is the one before it.
      while (waiting[0]?.before === last) {
        last = waiting.shift()?.after ?? null;
      }
    }
    this._line = this._lineTo(last);
  }

  /** Return whether an execution has led to the present state; null stands for the beginning. */
  isOnLine(id: string | null): boolean {
    return id === null || !this._before.has(id) || this._line.has(id);
  }

  /** Return the executions that would no longer be on the line after a restore to a checkpoint. */
  leftBy(checkpoint: ICheckpoint): ReadonlySet<string> {
    const kept = this._lineTo(checkpoint.after);
    return new Set([...this._line].filter(id => !kept.has(id)));
  }

  private _lineTo(last: string | null): ReadonlySet<string> {
    const line = new Set<string>();
    for (let id = last; id !== null && this._before.has(id); id = this._before.get(id) ?? null) {
      line.add(id);
    }
    return line;
  }

  /** The one before each, on its line. */
  private readonly _before = new Map<string, string | null>();
  private readonly _line: ReadonlySet<string>;
}

/** A point of a session's history. */
export type HistoryEntry =
  | { readonly type: 'checkpoint'; readonly at: string; readonly checkpoint: ICheckpoint }
  | { readonly type: 'restore'; readonly at: string; readonly restore: IRestore }
  | { readonly type: 'branch'; readonly at: string; readonly branch: ISession };

/** Return the points of a session's history, the newest first. */
export function historyOf(
  session: ISession,
  checkpoints: readonly ICheckpoint[],
  sessions: Iterable<ISession>
): readonly HistoryEntry[] {
  const entries: HistoryEntry[] = [
    ...checkpoints.map(each => ({ type: 'checkpoint', at: each.created_at, checkpoint: each }) as const),
    ...(session.restores ?? []).map(each => ({ type: 'restore', at: each.at, restore: each }) as const),
    ...[...sessions]
      .filter(each => each.branch_of === session.id)
      .map(each => ({ type: 'branch', at: each.created_at, branch: each }) as const)
  ];
  return entries.sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
}

/** Return whether the checkpoints of a session may be others after an event of the feed. */
export function changesCheckpoints(event: FeedEvent, sessionId: string): boolean {
  switch (event.type) {
    case 'reset':
      return true;
    case 'checkpointed':
      return event.checkpointed.session_id === sessionId;
    case 'restored':
      return event.restored.session_id === sessionId;
    case 'checkpoint_deleted':
      return event.checkpoint_deleted.session_id === sessionId;
    default:
      return false;
  }
}
