/** Runs of several sessions as one list. Pure. */

import type { IExecution } from '../api/types';
import type { IExecState } from './state';

export interface IMerged {
  /** The newest first, as far back as the runs of each session are known. */
  readonly runs: readonly IExecution[];
  /** The sessions of which earlier runs have to be listed before the list can go on. */
  readonly behind: readonly string[];
}

export function merged(
  state: Pick<IExecState, 'executions' | 'whole'>,
  sessionIds: readonly string[]
): IMerged {
  const lists = sessionIds.map(id => ({ id, runs: state.executions.get(id) ?? [] }));
  const unfinished = lists.filter(({ id, runs }) => runs.length > 0 && !state.whole.has(id));
  const first = (runs: readonly IExecution[]): string => runs[runs.length - 1]?.created_at ?? '';
  const since = unfinished.reduce((latest, { runs }) => (first(runs) > latest ? first(runs) : latest), '');
  const runs = lists.flatMap(each => each.runs.filter(run => run.created_at >= since));
  return {
    runs: runs.sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0)),
    behind: unfinished.filter(each => first(each.runs) === since).map(({ id }) => id)
  };
}
