import { describe, expect, it } from 'vitest';

import type { IExecution } from '../src/api/types';
import { merged } from '../src/model/merged';
import { execution } from './helpers';

const run = (id: string, minute: number): IExecution =>
  execution(id, { created_at: `2026-01-01T00:${String(minute).padStart(2, '0')}:00.000Z` });
const of = (
  lists: { [id: string]: IExecution[] },
  whole: string[],
  ids = Object.keys(lists)
): ReturnType<typeof merged> =>
  merged({ executions: new Map(Object.entries(lists)), whole: new Set(whole) }, ids);
const ids = (runs: readonly IExecution[]): string[] => runs.map(each => each.id);

describe('merged', () => {
  const a = [run('a5', 5), run('a2', 2)];
  const b = [run('b6', 6), run('b3', 3), run('b1', 1)];

  it('has the newest of all sessions first', () => {
    expect(ids(of({ a, b }, ['a', 'b']).runs)).toEqual(['b6', 'a5', 'b3', 'a2', 'b1']);
    expect(of({ a, b }, ['a', 'b']).behind).toEqual([]);
  });

  it('ends where the earlier runs of a session are not known', () => {
    // Between a2 and b1 there may be runs of a that nobody has listed.
    expect(of({ a, b }, ['b'])).toEqual({ runs: [b[0], a[0], b[1], a[1]], behind: ['a'] });
    // Listed further, it is the other one that holds the list up.
    expect(of({ a: [...a, run('a0', 0)], b }, [])).toMatchObject({ behind: ['b'] });
  });

  it('names every session that is behind, and none without runs', () => {
    const c = [run('c2', 2)];
    expect(of({ a, c, empty: [] }, []).behind).toEqual(['a', 'c']);
    expect(of({}, [], ['unknown'])).toEqual({ runs: [], behind: [] });
  });
});
