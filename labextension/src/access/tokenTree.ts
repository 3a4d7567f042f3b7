/** Tree of tokens: each with those that were made with it. Pure. */

import type { IToken } from '../api/types';

export interface INode {
  readonly token: IToken;
  readonly children: readonly INode[];
}

export type TokenState = 'active' | 'expired' | 'revoked';

/** @param now In milliseconds. */
export function tokenState(token: IToken, now: number): TokenState {
  if (token.revoked_at !== null) {
    return 'revoked';
  }
  return token.expired || Date.parse(token.expires_at) <= now ? 'expired' : 'active';
}

/** Return tokens below those that created them, the newest first; whose parent is not listed stands at the top. */
export function tree(tokens: Iterable<IToken>): readonly INode[] {
  const all = [...tokens];
  const known = new Set(all.map(token => token.id));
  const below = new Map<string | null, IToken[]>();
  for (const token of all) {
    const parent = token.parent_id !== null && known.has(token.parent_id) ? token.parent_id : null;
    below.set(parent, [...(below.get(parent) ?? []), token]);
  }
  const nodes = (parent: string | null): INode[] =>
    (below.get(parent) ?? [])
      .sort((a, b) => b.created_at.localeCompare(a.created_at) || a.id.localeCompare(b.id))
      .map(token => ({ token, children: nodes(token.id) }));
  return nodes(null);
}

/** How many tokens are below one, at any depth, that still let somebody in. */
export function activeBelow(node: INode, now: number): number {
  return node.children.reduce(
    (sum, child) => sum + (tokenState(child.token, now) === 'active' ? 1 : 0) + activeBelow(child, now),
    0
  );
}
