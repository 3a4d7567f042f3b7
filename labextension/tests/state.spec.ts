import { describe, expect, it } from 'vitest';

import { type Change, EMPTY, type IExecState, MAX_EXECUTIONS, reduce } from '../src/model/state';
import { counts, groups, inOrderOf, NO_FILTER, tokenId } from '../src/model/view';
import { execution, INFO, session, token } from './helpers';

function after(...changes: Change[]): IExecState {
  return changes.reduce(reduce, EMPTY);
}

function snapshot(...sessions: ReturnType<typeof session>[]): Change {
  return { type: 'snapshot', info: INFO, sessions, tokens: [], grants: [], approvals: [], withEnded: false };
}

describe('reduce', () => {
  it('takes a snapshot for all there is', () => {
    const state = after(
      { type: 'session', session: session('old') },
      { type: 'executions', sessionId: 'old', executions: [execution('e')] },
      { type: 'execution', execution: execution('r', { state: 'running' }) },
      snapshot(session('new'))
    );
    expect([...state.sessions.keys()]).toEqual(['new']);
    expect(state.executions.size).toBe(0);
    expect(state.open.size).toBe(0);
  });

  it('keeps the executions of sessions that are still there', () => {
    const state = after(
      snapshot(session('s1')),
      { type: 'executions', sessionId: 's1', executions: [execution('e')] },
      snapshot(session('s1'))
    );
    expect(state.executions.get('s1')).toHaveLength(1);
  });

  it('replaces a session by a newer record of it', () => {
    const state = after(snapshot(session('a')), {
      type: 'session',
      session: session('a', { state: 'busy' })
    });
    expect(state.sessions.get('a')?.state).toBe('busy');
  });

  it('keeps executions of sessions that are looked at, newest first', () => {
    const state = after(
      { type: 'executions', sessionId: 's1', executions: [execution('a')] },
      {
        type: 'execution',
        execution: execution('b', { created_at: '2026-01-02T00:00:00Z', state: 'running' })
      },
      { type: 'execution', execution: execution('c', { session_id: 'other' }) },
      { type: 'execution', execution: execution('a', { state: 'error' }) }
    );
    expect(state.executions.get('s1')?.map(each => [each.id, each.state])).toEqual([
      ['b', 'running'],
      ['a', 'error']
    ]);
    expect(state.executions.has('other')).toBe(false);
  });

  it('forgets the oldest of very many', () => {
    const changes = Array.from({ length: MAX_EXECUTIONS + 5 }, (_, n): Change => {
      const created = new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString();
      return { type: 'execution', execution: execution(`e${n}`, { created_at: created }) };
    });
    const state = after({ type: 'executions', sessionId: 's1', executions: [] }, ...changes);
    expect(state.executions.get('s1')).toHaveLength(MAX_EXECUTIONS);
    expect(state.executions.get('s1')?.[0]?.id).toBe(`e${MAX_EXECUTIONS + 4}`);
  });

  it('keeps earlier executions that were asked for, and knows whether the first is among them', () => {
    const at = (n: number): ReturnType<typeof execution> =>
      execution(`e${n}`, { created_at: new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString() });
    const many = Array.from({ length: MAX_EXECUTIONS }, (_, n) => at(n + 1));
    const listed = after({ type: 'executions', sessionId: 's1', executions: many });
    expect(listed.whole.has('s1')).toBe(false);
    const state = reduce(listed, {
      type: 'executions',
      sessionId: 's1',
      executions: [at(0)],
      earlier: true,
      whole: true
    });
    expect(state.whole.has('s1')).toBe(true);
    expect(state.executions.get('s1')).toHaveLength(MAX_EXECUTIONS + 1);
    expect(state.executions.get('s1')?.[MAX_EXECUTIONS]?.id).toBe('e0');
    const next = reduce(state, { type: 'execution', execution: at(999) });
    expect(next.executions.get('s1')?.[MAX_EXECUTIONS]?.id).toBe('e1');
    expect(next.whole.has('s1')).toBe(false);
  });

  it('knows what is open in any session', () => {
    const waiting = execution('w', { session_id: 'x', state: 'awaiting_approval' });
    const state = after({ type: 'execution', execution: waiting });
    expect(counts(state).awaiting).toBe(1);
    expect(
      counts(reduce(state, { type: 'execution', execution: { ...waiting, state: 'rejected' } })).awaiting
    ).toBe(0);
  });

  it('has what waits for a person from the start', () => {
    const waiting = execution('w', { state: 'awaiting_approval' });
    const state = after({
      type: 'snapshot',
      info: INFO,
      sessions: [],
      tokens: [],
      grants: [],
      approvals: [waiting],
      withEnded: false
    });
    expect(state.open.get('w')).toBe(waiting);
  });

  it('passes over events that it does not know', () => {
    const state = after(snapshot(session('a')));
    expect(reduce(state, { type: 'weather' } as unknown as Change)).toBe(state);
  });
});

describe('groups', () => {
  const state = after(
    snapshot(
      session('mine'),
      session('b1', { owner: 'token:b', name: 'analysis', state: 'busy' }),
      session('a1', { owner: 'token:a', created_at: '2026-01-01T00:00:00Z' }),
      session('a2', { owner: 'token:a', created_at: '2026-01-02T00:00:00Z' }),
      session('gone', { owner: 'token:a', state: 'ended', created_at: '2026-02-01T00:00:00Z' })
    ),
    { type: 'token', token: token('a', { name: 'zeta' }) },
    { type: 'token', token: token('b', { name: 'alpha' }) }
  );
  const ids = (filter: Partial<typeof NO_FILTER>): string[][] =>
    groups(state, { ...NO_FILTER, ...filter }).map(group => group.sessions.map(each => each.id));

  it('has the owner first, then tokens by name, the newest session first', () => {
    expect(ids({})).toEqual([['mine'], ['b1'], ['a2', 'a1']]);
  });

  it('has what has ended last, and only on request', () => {
    expect(ids({ ended: true })).toEqual([['mine'], ['b1'], ['a2', 'a1', 'gone']]);
  });

  it('filters by state', () => {
    expect(ids({ show: 'busy' })).toEqual([['b1']]);
    expect(ids({ show: 'idle' })).toEqual([['mine'], ['a2', 'a1']]);
  });

  it('finds all words in names and tokens', () => {
    expect(ids({ query: 'ANALYSIS' })).toEqual([['b1']]);
    expect(ids({ query: 'zeta idle' })).toEqual([['a2', 'a1']]);
    expect(ids({ query: 'nothing like it' })).toEqual([]);
  });

  it('counts', () => {
    expect(counts(state)).toEqual({ sessions: 4, busy: 1, awaiting: 0, asking: 0 });
  });

  it('knows the id of a token by its principal', () => {
    expect(tokenId('token:a/b')).toBe('b');
    expect(tokenId('token:a')).toBe('a');
    expect(tokenId('owner')).toBeNull();
  });
});

describe('order of sessions', () => {
  const state = after(
    snapshot(
      session('idle', { name: 'c', created_at: '2026-01-04T00:00:00Z' }),
      session('asks', { name: 'd', created_at: '2026-01-01T00:00:00Z', waits_for: 'input' }),
      session('busy', { name: 'b', created_at: '2026-01-02T00:00:00Z', state: 'busy' }),
      session('new', { name: 'a', created_at: '2026-01-05T00:00:00Z' })
    )
  );
  const ids = (all: readonly { sessions: readonly { id: string }[] }[]): string[] =>
    all.flatMap(group => group.sessions.map(each => each.id));

  it('has those first that wait for a person, and then those that run', () => {
    expect(ids(groups(state, { ...NO_FILTER, order: 'busy' }))).toEqual(['asks', 'busy', 'new', 'idle']);
    expect(ids(groups(state, { ...NO_FILTER, order: 'newest' }))).toEqual(['new', 'idle', 'busy', 'asks']);
    expect(ids(groups(state, { ...NO_FILTER, order: 'name' }))).toEqual(['new', 'busy', 'idle', 'asks']);
  });

  it('stays as it was while that is wanted, with new ones at the end', () => {
    const before = groups(after(snapshot(session('busy'), session('asks'), session('gone'))), NO_FILTER);
    const now = inOrderOf(groups(state, { ...NO_FILTER, order: 'busy' }), before);
    expect(ids(before)).toEqual(['asks', 'busy', 'gone']);
    expect(ids(now)).toEqual(['asks', 'busy', 'new', 'idle']);
    expect(ids(inOrderOf(groups(state, NO_FILTER), before))).toEqual(['asks', 'busy', 'new', 'idle']);
  });
});
