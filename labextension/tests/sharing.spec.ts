import { describe, expect, it } from 'vitest';

import type { IGrant } from '../src/api/types';
import { attachSnippet } from '../src/access/snippets';
import { type Change, EMPTY, type IExecState, reduce } from '../src/model/state';
import { isShared, sharing, tokenOf } from '../src/model/sharing';
import { execution, INFO, session, token } from './helpers';

function grant(id: string, changes: Partial<IGrant> = {}): IGrant {
  return {
    id,
    token_id: 't',
    kernel_id: 'k',
    kernel_name: 'python3',
    name: 'a.ipynb',
    created_at: '2026-01-01T00:00:00Z',
    expires_at: null,
    ended_at: null,
    ...changes
  };
}

function after(...changes: Change[]): IExecState {
  return changes.reduce(reduce, EMPTY);
}

describe('reduce', () => {
  it('keeps grants until they end', () => {
    const granted = after({ type: 'grant', grant: grant('g') }, { type: 'grant', grant: grant('h') });
    expect([...granted.grants.keys()]).toEqual(['g', 'h']);
    const ended = reduce(granted, {
      type: 'grant',
      grant: grant('g', { ended_at: '2026-01-01T00:00:01Z' })
    });
    expect([...ended.grants.keys()]).toEqual(['h']);
  });

  it('takes the grants of a snapshot for all there are', () => {
    const rest = { info: INFO, sessions: [], tokens: [], approvals: [], withEnded: false };
    const state = after(
      { type: 'grant', grant: grant('old') },
      { type: 'snapshot', grants: [grant('new')], ...rest }
    );
    expect([...state.grants.keys()]).toEqual(['new']);
  });
});

describe('sharing', () => {
  const attached = session('s', { attached: true, kernel_id: 'k' });
  const state = after(
    { type: 'grant', grant: grant('g') },
    { type: 'grant', grant: grant('h', { kernel_id: 'another' }) },
    { type: 'token', token: token('t') },
    { type: 'session', session: attached },
    { type: 'session', session: session('own', { kernel_id: 'k' }) },
    { type: 'session', session: { ...attached, id: 'gone', state: 'ended' } },
    { type: 'execution', execution: execution('e', { session_id: 's', state: 'running' }) },
    { type: 'execution', execution: execution('f', { session_id: 'own', state: 'running' }) }
  );

  it('has the grants, the sessions and what runs of one kernel', () => {
    const shared = sharing(state, 'k');
    expect(shared.grants.map(each => each.id)).toEqual(['g']);
    expect(shared.sessions.map(each => each.id)).toEqual(['s']);
    expect(shared.running?.id).toBe('e');
    expect(isShared(shared)).toBe(true);
  });

  it('is empty for other kernels and for none', () => {
    expect(isShared(sharing(state, 'unknown'))).toBe(false);
    expect(isShared(sharing(state, null))).toBe(false);
  });

  it('finds the token of a grant', () => {
    expect(tokenOf(state, grant('g'))?.id).toBe('t');
    expect(tokenOf(state, grant('g', { token_id: 'unknown' }))).toBeNull();
  });
});

describe('attachSnippet', () => {
  it('has the secret of a new token alone', () => {
    expect(attachSnippet('http://x/', 'jex_secret', 'k')).toContain('token = "jex_secret"');
    const known = attachSnippet('http://x/', null, 'k"\n');
    expect(known).toContain('token = os.environ["JUPYTER_TOKEN"]');
    expect(known).toContain('kernel_id="k\\"\\n"');
  });
});
