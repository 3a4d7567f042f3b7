/** Selection and order of the sessions to show: pure. */

import type { ISession, IToken } from '../api/types';
import type { IExecState } from './state';

export interface IFilter {
  /** Words that must all occur; empty for everything. */
  readonly query: string;
  readonly show: 'all' | 'busy' | 'idle';
  readonly ended: boolean;
  readonly order: Order;
}

/** Of the sessions of one owner; `busy` has those first that wait for a person, and then those that run. */
export type Order = 'busy' | 'newest' | 'name';

export const NO_FILTER: IFilter = { query: '', show: 'all', ended: false, order: 'newest' };

/** The sessions of one owner: a token, or the server's own user. */
export interface IGroup {
  readonly principal: string;
  /** Null for the owner, or where tokens may not be read. */
  readonly token: IToken | null;
  readonly sessions: readonly ISession[];
}

export interface ICounts {
  readonly sessions: number;
  readonly busy: number;
  /** Executions that a person has to approve. */
  readonly awaiting: number;
  /** Sessions whose code asks for input. */
  readonly asking: number;
}

export function isAlive(session: ISession): boolean {
  return session.state !== 'ended';
}

/** Return the sessions that pass the filter, by owner: the server's user first. */
export function groups(state: IExecState, filter: IFilter): readonly IGroup[] {
  const words = filter.query.toLowerCase().split(/\s+/).filter(Boolean);
  const byPrincipal = new Map<string, ISession[]>();
  for (const session of state.sessions.values()) {
    if (passes(session, filter) && words.every(word => searchText(session, state).includes(word))) {
      const group = byPrincipal.get(session.owner);
      if (group === undefined) {
        byPrincipal.set(session.owner, [session]);
      } else {
        group.push(session);
      }
    }
  }
  const order = comparison(filter.order);
  return [...byPrincipal.entries()]
    .map(([principal, sessions]) => ({
      principal,
      token: state.tokens.get(principal) ?? null,
      sessions: sessions.sort(order)
    }))
    .sort(byOwner);
}

/** Keep sessions in the order in which they were, so that no row moves from under a person's hand; new ones come last. */
export function inOrderOf(groups: readonly IGroup[], before: readonly IGroup[]): readonly IGroup[] {
  const known = before.flatMap(group => group.sessions.map(session => session.id));
  const places = new Map(known.map((id, place) => [id, place]));
  const place = (session: ISession): number => places.get(session.id) ?? places.size;
  return groups.map(group => ({
    ...group,
    sessions: [...group.sessions].sort((a, b) => place(a) - place(b))
  }));
}

export function counts(state: IExecState): ICounts {
  let sessions = 0;
  let busy = 0;
  let asking = 0;
  for (const session of state.sessions.values()) {
    sessions += isAlive(session) ? 1 : 0;
    busy += session.state === 'busy' ? 1 : 0;
    asking += session.waits_for === 'input' ? 1 : 0;
  }
  let awaiting = 0;
  for (const execution of state.open.values()) {
    awaiting += execution.state === 'awaiting_approval' ? 1 : 0;
  }
  return { sessions, busy, awaiting, asking };
}

/** Return what a token's principal ends with: its own id, without those of the tokens above it. */
export function tokenId(principal: string): string | null {
  return principal.startsWith('token:') ? (/[^/:]*$/.exec(principal)?.[0] ?? null) : null;
}

function passes(session: ISession, filter: IFilter): boolean {
  if (!isAlive(session)) {
    return filter.ended && filter.show === 'all';
  }
  return filter.show === 'all' || (session.state === 'busy') === (filter.show === 'busy');
}

function searchText(session: ISession, state: IExecState): string {
  const token = state.tokens.get(session.owner);
  const parts = [
    session.name,
    session.id,
    session.kernel_name,
    session.language,
    session.isolation,
    session.state
  ];
  parts.push(session.owner, token?.name ?? '', token?.policy ?? '');
  return parts.join('\n').toLowerCase();
}

function comparison(order: Order): (a: ISession, b: ISession) => number {
  const rank = (each: ISession): number => (each.waits_for !== null ? 2 : Number(each.state === 'busy'));
  switch (order) {
    case 'busy':
      return (a, b) => rank(b) - rank(a) || newestFirst(a, b);
    case 'name':
      return (a, b) => (a.name || a.id).localeCompare(b.name || b.id) || newestFirst(a, b);
    default:
      return newestFirst;
  }
}

function newestFirst(a: ISession, b: ISession): number {
  return (
    Number(isAlive(b)) - Number(isAlive(a)) ||
    b.created_at.localeCompare(a.created_at) ||
    a.id.localeCompare(b.id)
  );
}

function byOwner(a: IGroup, b: IGroup): number {
  const ours = Number(tokenId(a.principal) !== null) - Number(tokenId(b.principal) !== null);
  return (
    ours || (a.token?.name ?? '').localeCompare(b.token?.name ?? '') || a.principal.localeCompare(b.principal)
  );
}
