/** Places on a time axis: pure. */

import type { IExecution } from '../api/types';
import { tone } from '../words';

/** Choices for the time that a view shows, in minutes; the server's samples reach as far. */
export const RANGES = [5, 15, 60] as const;

/** In milliseconds. */
export interface IRange {
  readonly from: number;
  readonly to: number;
}

export interface IBar {
  readonly execution: IExecution;
  readonly tone: ReturnType<typeof tone>;
  /** In percent of the axis. */
  readonly left: number;
  readonly width: number;
}

/** Return the shortest range that has all of a session, or the longest. */
export function fittingMinutes(sinceIso: string, now: number): number {
  return RANGES.find(minutes => Date.parse(sinceIso) >= now - minutes * 60_000) ?? 60;
}

export function percentOf(moment: number, { from, to }: IRange): number {
  return Math.min(100, Math.max(0, ((moment - from) / (to - from)) * 100));
}

/** Return the bars of what ran in a range; what still runs goes on to its end. */
export function barsOf(executions: readonly IExecution[], range: IRange): IBar[] {
  return executions.flatMap(execution => {
    const began = execution.started_at === null ? NaN : Date.parse(execution.started_at);
    const ended = execution.finished_at === null ? range.to : Date.parse(execution.finished_at);
    if (!(began <= range.to && ended >= range.from)) {
      return [];
    }
    const left = percentOf(began, range);
    return [{ execution, tone: tone(execution.state), left, width: percentOf(ended, range) - left }];
  });
}

/** Return the moments to name: full minutes, four to six of them. */
export function ticksOf({ from, to }: IRange): number[] {
  const step = Math.max(1, Math.round((to - from) / 60_000 / 5)) * 60_000;
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, n) => first + n * step);
}
