/** Charts of a session's use over time, in plain SVG: a library for charts is larger than this extension. */

import * as React from 'react';

import type { ISession, ISessionUsage } from '../api/types';
import { useServices } from '../panel/services';
import { useWhileVisible } from '../panel/visible';
import { sizeWords } from '../words';
import { type IRange, percentOf, ticksOf } from './axis';
import { type IPoint, pathsOf, scaleOf } from './series';

const LOOK_SECONDS = 5;

export function Usage(props: { session: ISession; range: IRange }): React.ReactElement {
  const { session, range } = props;
  const { model, trans } = useServices();
  const [usage, setUsage] = React.useState<ISessionUsage | null>(null);
  const element = React.useRef<HTMLDivElement>(null);
  const look = React.useCallback(() => {
    model.client
      .usage(session.id)
      .then(setUsage, reason => console.warn('What a session uses could not be looked up.', reason));
  }, [model, session.id]);
  useWhileVisible(element, LOOK_SECONDS, session.state !== 'ended', look);

  const points = (value: (sample: ISessionUsage['samples'][number]) => number): IPoint[] =>
    (usage?.samples ?? [])
      .map(sample => ({ at: Date.parse(sample.at), value: value(sample) }))
      .filter(({ at }) => at >= range.from);
  const processors = (value: number): string => value.toFixed(value < 10 ? 2 : 0);
  const cpuSeconds = usage?.max_cpu_seconds ?? null;
  const memoryLimit = usage?.max_memory_bytes ?? null;
  return (
    <div className="jex-Charts" ref={element}>
      {usage !== null && !usage.measured && usage.samples.length === 0 ? (
        <p className="jex-Hint">
          {session.state === 'ended'
            ? trans.__('Usage of an ended session is not kept.')
            : session.isolation === 'remote'
              ? trans.__('The kernel runs elsewhere, where its memory and processors are not measured.')
              : trans.__('Memory and processors are measured as soon as the kernel runs.')}
        </p>
      ) : (
        <>
          <Chart
            name={trans.__('Memory')}
            points={points(sample => sample.memory_bytes)}
            range={range}
            words={sizeWords}
            limit={memoryLimit}
            limitWords={
              memoryLimit === null
                ? trans.__('no limit')
                : trans.__('limit %1 of address space for each process', sizeWords(memoryLimit))
            }
          />
          <Chart
            name={trans.__('Processors')}
            points={points(sample => sample.cpu)}
            range={range}
            words={processors}
            limit={usage?.processors ?? null}
            limitWords={[
              trans.__('of %1', usage?.processors ?? '…'),
              ...(cpuSeconds === null
                ? []
                : [trans.__('limit %1 s of processor time for each process', cpuSeconds)])
            ].join(', ')}
          />
        </>
      )}
    </div>
  );
}

function Chart(props: {
  name: string;
  points: readonly IPoint[];
  range: IRange;
  words: (value: number) => string;
  limit: number | null;
  limitWords: string;
}): React.ReactElement {
  const { trans } = useServices();
  const { name, points, range, words, limit, limitWords } = props;
  const { top, withLimit } = scaleOf(points, limit);
  const { line, area } = pathsOf(points, range, top);
  const last = points[points.length - 1];
  const peak = points.reduce((most, point) => Math.max(most, point.value), 0);
  const now = last === undefined ? '…' : words(last.value);
  const label = trans.__('%1 over time: now %2, at most %3, %4', name, now, words(peak), limitWords);
  return (
    <figure className="jex-Chart">
      <figcaption>
        <span className="jex-Chart-name">{name}</span>
        <span className="jex-Chart-now">{now}</span>
        <span className="jex-Chart-limit">
          {limit === null || withLimit
            ? limitWords
            : trans.__('%1; the limit is above this scale', limitWords)}
        </span>
      </figcaption>
      <div className="jex-Chart-plot">
        <svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label={label}>
          {ticksOf(range).map(tick => (
            <path key={tick} className="jex-Chart-grid" d={`M${percentOf(tick, range)} 0V100`} />
          ))}
          <path className="jex-Chart-area" d={area} />
          <path className="jex-Chart-line" d={line} />
          {limit !== null && (
            // One that is above the scale is at its upper end.
            <path className="jex-Chart-bound" d={`M0 ${withLimit ? 100 - (limit / top) * 100 : 2}H100`} />
          )}
        </svg>
        <span className="jex-Chart-top" aria-hidden="true">
          {words(top)}
        </span>
      </div>
    </figure>
  );
}
