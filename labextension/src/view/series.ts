/** Lines of a chart: pure. */

import { type IRange, percentOf } from './axis';

export interface IPoint {
  readonly at: number;
  readonly value: number;
}

/** Where nothing was measured for longer, there is no line. In milliseconds. */
const GAP = 90_000;
/** A limit that is higher than so many times the highest value is not on the scale: nothing else could be seen. */
const FAR = 5;

/** Return the highest value of the scale, and whether the limit is on it. */
export function scaleOf(
  points: readonly IPoint[],
  limit: number | null
): { top: number; withLimit: boolean } {
  const peak = points.reduce((most, point) => Math.max(most, point.value), 0);
  const withLimit = limit !== null && (peak === 0 || limit <= FAR * peak);
  return { top: Math.max(peak * 1.1, withLimit ? limit * 1.05 : 0) || 1, withLimit };
}

/** Return a path for SVG in a box of 100 by 100, and the same closed to an area. */
export function pathsOf(
  points: readonly IPoint[],
  range: IRange,
  top: number
): { line: string; area: string } {
  let [line, area] = ['', ''];
  let start = 0;
  points.forEach(({ at, value }, index) => {
    const place = `${percentOf(at, range).toFixed(2)} ${(100 - (value / top) * 100).toFixed(2)}`;
    const next = points[index + 1];
    const begins = index === 0 || at - (points[index - 1]?.at ?? 0) > GAP;
    if (begins) {
      start = at;
      area += `M${percentOf(at, range).toFixed(2)} 100`;
    }
    line += `${begins ? 'M' : 'L'}${place}`;
    area += `L${place}`;
    if (next === undefined || next.at - at > GAP) {
      // A single point is seen as a short line.
      line += start === at ? 'h0.2' : '';
      area += `V100Z`;
    }
  });
  return { line, area };
}
