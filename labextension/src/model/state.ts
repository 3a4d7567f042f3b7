/** State of the front end and its changes: pure. */

import type { Trouble } from '../api/errors';
import type { FeedEvent, IExecution, IGrant, IInfo, ISession, IToken } from '../api/types';

/** Of one session's executions, the newest are kept, unless somebody has asked for earlier ones. */
export const MAX_EXECUTIONS = 200;

export type Connection =
  | { readonly status: 'connecting' }
  | { readonly status: 'live' }
  | {
      readonly status: 'waiting';
      readonly trouble: Trouble;
      readonly message: string;
      readonly attempt: number;
    };

/** True once a lost connection is worth a message: a single failed attempt is not. */
export function isOutOfReach(
  connection: Connection
): connection is Extract<Connection, { status: 'waiting' }> {
  return connection.status === 'waiting' && (connection.trouble !== 'unreachable' || connection.attempt >= 2);
}

export interface IExecState {
  readonly connection: Connection;
  /** Null until the server has answered once. */
  readonly info: IInfo | null;
  readonly sessions: ReadonlyMap<string, ISession>;
  /** Memory of their kernels in bytes, by session, as of the last look. */
  readonly memory: ReadonlyMap<string, number>;
  /** By session, for those that somebody looks at; newest first. */
  readonly executions: ReadonlyMap<string, readonly IExecution[]>;
  /** The sessions of those whose first execution is among them. */
  readonly whole: ReadonlySet<string>;
  /** All that have not finished, by id, whoever looks. */
  readonly open: ReadonlyMap<string, IExecution>;
  /** By principal; empty for those who may not read tokens. */
  readonly tokens: ReadonlyMap<string, IToken>;
  /** The active ones, by id. */
  readonly grants: ReadonlyMap<string, IGrant>;
  /** True if `sessions` has those that ended before this page was opened. */
  readonly withEnded: boolean;
}

export type Change =
  | { readonly type: 'connection'; readonly connection: Connection }
  | {
      readonly type: 'snapshot';
      readonly info: IInfo;
      readonly sessions: readonly ISession[];
      readonly tokens: readonly IToken[];
      readonly grants: readonly IGrant[];
      /** The executions that wait for a person. */
      readonly approvals: readonly IExecution[];
      readonly withEnded: boolean;
    }
  | {
      readonly type: 'executions';
      readonly sessionId: string;
      readonly executions: readonly IExecution[];
      /** True if they come before those that are there already. */
      readonly earlier?: boolean;
      /** True if none came before them. */
      readonly whole?: boolean;
    }
  | { readonly type: 'forget'; readonly sessionId: string }
  | { readonly type: 'memory'; readonly memory: ReadonlyMap<string, number> }
  | FeedEvent;

export const EMPTY: IExecState = {
  connection: { status: 'connecting' },
  info: null,
  sessions: new Map(),
  memory: new Map(),
  executions: new Map(),
  whole: new Set(),
  open: new Map(),
  tokens: new Map(),
  grants: new Map(),
  withEnded: false
};

const OPEN_STATES = new Set(['awaiting_approval', 'queued', 'running']);

export function isOpen(execution: IExecution): boolean {
  return OPEN_STATES.has(execution.state);
}

/** Return the state after a change; the same object if nothing has changed. */
export function reduce(state: IExecState, change: Change): IExecState {
  switch (change.type) {
    case 'connection':
      return { ...state, connection: change.connection };
    case 'snapshot':
      return snapshot(state, change);
    case 'session':
      return { ...state, sessions: withEntry(state.sessions, change.session.id, change.session) };
    case 'execution':
      return execution(state, change.execution);
    case 'token':
      return { ...state, tokens: withEntry(state.tokens, change.token.principal, change.token) };
    case 'grant': {
      const { grant } = change;
      const grants = without(state.grants, grant.id);
      return { ...state, grants: grant.ended_at === null ? withEntry(grants, grant.id, grant) : grants };
    }
    case 'executions':
      return listed(state, change);
    case 'memory':
      return { ...state, memory: change.memory };
    case 'forget':
      return { ...state, executions: without(state.executions, change.sessionId) };
    case 'reset': // a snapshot follows
      return state;
    default: // an event that a newer server sends
      return state;
  }
}

function snapshot(state: IExecState, change: Extract<Change, { type: 'snapshot' }>): IExecState {
  const sessions = new Map(change.sessions.map(session => [session.id, session]));
  const gone = [...state.executions.keys()].filter(id => !sessions.has(id));
  const executions = gone.length === 0 ? state.executions : new Map(state.executions);
  for (const id of gone) {
    (executions as Map<string, readonly IExecution[]>).delete(id);
  }
  return {
    ...state,
    info: change.info,
    sessions,
    executions,
    // Open ones may have finished unseen; those that still run are listed again where they are shown.
    open: withOpen(new Map(), change.approvals),
    tokens: new Map(change.tokens.map(token => [token.principal, token])),
    grants: new Map(change.grants.map(grant => [grant.id, grant])),
    withEnded: change.withEnded
  };
}

function execution(state: IExecState, changed: IExecution): IExecState {
  const open = withOpen(state.open, [changed]);
  const listed = state.executions.get(changed.session_id);
  if (listed === undefined) {
    return { ...state, open };
  }
  const known = listed.some(each => each.id === changed.id);
  const next = known
    ? listed.map(each => (each.id === changed.id ? changed : each))
    : newestFirst([changed, ...listed]).slice(0, Math.max(MAX_EXECUTIONS, listed.length));
  const isWhole = state.whole.has(changed.session_id) && (known || next.length > listed.length);
  const whole = withMember(state.whole, changed.session_id, isWhole);
  return { ...state, open, whole, executions: withEntry(state.executions, changed.session_id, next) };
}

function listed(state: IExecState, change: Extract<Change, { type: 'executions' }>): IExecState {
  const { sessionId } = change;
  const later = change.earlier ? (state.executions.get(sessionId) ?? []) : [];
  return {
    ...state,
    executions: withEntry(state.executions, sessionId, [...later, ...newestFirst(change.executions)]),
    whole: withMember(state.whole, sessionId, change.whole ?? false),
    open: withOpen(state.open, change.executions)
  };
}

function newestFirst(executions: readonly IExecution[]): readonly IExecution[] {
  // Stable, so that what was made in one moment stays in the server's order.
  return [...executions].sort((a, b) => compare(b.created_at, a.created_at));
}

function withMember(set: ReadonlySet<string>, member: string, is: boolean): ReadonlySet<string> {
  if (set.has(member) === is) {
    return set;
  }
  return is ? new Set([...set, member]) : new Set([...set].filter(each => each !== member));
}

function withOpen(
  open: ReadonlyMap<string, IExecution>,
  changed: readonly IExecution[]
): ReadonlyMap<string, IExecution> {
  const next = new Map(open);
  for (const each of changed) {
    if (isOpen(each)) {
      next.set(each.id, each);
    } else {
      next.delete(each.id);
    }
  }
  return next;
}

function withEntry<V>(map: ReadonlyMap<string, V>, key: string, value: V): ReadonlyMap<string, V> {
  return new Map(map).set(key, value);
}

function without<V>(map: ReadonlyMap<string, V>, key: string): ReadonlyMap<string, V> {
  const next = new Map(map);
  next.delete(key);
  return next;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
