/** Executions on a time axis: a bar for each, as long as it ran. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { IExecution } from '../api/types';
import { useServices } from '../panel/services';
import { durationWords, executionStateWords, headline, ranSeconds } from '../words';
import { barsOf, type IRange, percentOf, ticksOf } from './axis';

/** How many there are of each kind: for those who do not see the bars, or their colours. */
export function laneWords(
  trans: TranslationBundle,
  executions: readonly IExecution[],
  range: IRange
): string {
  const bars = barsOf(executions, range);
  const failed = bars.filter(bar => bar.tone === 'bad').length;
  return [
    trans._n('%1 in this time', '%1 in this time', bars.length),
    ...(failed > 0 ? [trans.__('%1 failed', failed)] : []),
    ...(bars.some(bar => bar.tone === 'running') ? [trans.__('1 running')] : [])
  ].join(', ');
}

export function Lane(props: {
  executions: readonly IExecution[];
  range: IRange;
  onChoose: (execution: IExecution) => void;
}): React.ReactElement {
  const { trans } = useServices();
  const { executions, range } = props;
  const bars = barsOf(executions, range);
  const label = trans.__('Runs: %1', laneWords(trans, executions, range));
  return (
    <div className="jex-Lane" role="img" aria-label={label}>
      {bars.map(bar => (
        <span
          key={bar.execution.id}
          className="jex-Bar"
          data-tone={bar.tone}
          style={{ left: `${bar.left}%`, width: `${bar.width}%` }}
          title={describe(bar.execution)}
          onClick={() => props.onChoose(bar.execution)}
        />
      ))}
    </div>
  );

  function describe(execution: IExecution): string {
    const seconds = ranSeconds(execution, range.to);
    return [
      headline(execution.code) || trans.__('(no code)'),
      [executionStateWords(trans, execution.state), seconds === null ? '' : durationWords(trans, seconds)]
        .filter(Boolean)
        .join(', '),
      execution.started_at === null ? '' : new Date(execution.started_at).toLocaleTimeString()
    ].join('\n');
  }
}

export function Ticks(props: { range: IRange }): React.ReactElement {
  const time = (tick: number): string =>
    new Date(tick).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' });
  return (
    <div className="jex-Ticks" aria-hidden="true">
      {ticksOf(props.range).map(tick => (
        <span key={tick} style={{ left: `${percentOf(tick, props.range)}%` }}>
          {time(tick)}
        </span>
      ))}
    </div>
  );
}
