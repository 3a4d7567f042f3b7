/** A session's executions, the newest first, as they happen. */

import * as React from 'react';

import { isOpen } from '../model/state';
import type { ISession } from '../api/types';
import { ExecutionRow } from './execution';
import { useExecState, useNow, useServices } from './services';

/** Shown at once, and more with each click. */
const PAGE = 20;

export function Timeline(props: { session: ISession; within: string }): React.ReactElement {
  const { session } = props;
  const { model, settings, trans } = useServices();
  const executions = useExecState().executions.get(session.id);
  const [shown, setShown] = React.useState(PAGE);
  const [toggled, setToggled] = React.useState<ReadonlyMap<string, boolean>>(new Map());
  const running = executions?.some(isOpen) ?? false;
  const now = useNow(1, running);
  React.useEffect(() => model.watch(session.id), [model, session.id]);

  if (executions === undefined) {
    return <p className="jex-Hint">{trans.__('Loading…')}</p>;
  }
  if (executions.length === 0) {
    return <p className="jex-Hint">{trans.__('Nothing has been run in this session.')}</p>;
  }
  return (
    <ol className="jex-Timeline" reversed aria-label={trans.__('Executions, the newest first')}>
      {executions.slice(0, shown).map((execution, index) => {
        const open = toggled.get(execution.id) ?? (index === 0 && settings.expandNewest);
        return (
          <ExecutionRow
            key={execution.id}
            execution={execution}
            session={session}
            within={props.within}
            open={open}
            now={isOpen(execution) ? now : 0}
            onToggle={setOpen => setToggled(each => new Map(each).set(execution.id, setOpen))}
          />
        );
      })}
      {executions.length > shown && (
        <li>
          <button className="jex-Button" onClick={() => setShown(shown + PAGE)}>
            {trans._n('Show %1 more', 'Show %1 more', Math.min(PAGE, executions.length - shown))}
          </button>
        </li>
      )}
    </ol>
  );
}
