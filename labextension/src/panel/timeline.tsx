/** Executions, the newest first, as they happen, with a line where a day begins. */

import * as React from 'react';

import { isOpen } from '../model/state';
import type { IExecution, ISession } from '../api/types';
import { ExecutionRow } from './execution';
import { rememberOpened, wasOpened } from './opened';
import { useExecState, useNow, useServices } from './services';
import { dayWords, isAskingInput } from './words';

/** Shown at once, and more with each click. */
const PAGE = 20;

/** The executions of a session, as many as somebody asks for. */
export function Timeline(props: { session: ISession; within: string }): React.ReactElement {
  const { session } = props;
  const { model, settings, trans } = useServices();
  const state = useExecState();
  const executions = state.executions.get(session.id);
  const [shown, setShown] = React.useState(PAGE);
  const count = executions?.length ?? 0;
  const isWhole = state.whole.has(session.id);
  React.useEffect(() => model.watch(session.id), [model, session.id]);
  React.useEffect(() => {
    if (count > 0 && count < shown && !isWhole) {
      model.earlier(session.id).catch(reason => {
        console.warn('Earlier executions could not be listed.', reason);
        setShown(count);
      });
    }
  }, [model, session.id, count, shown, isWhole]);

  if (executions === undefined) {
    return <p className="jex-Hint">{trans.__('Loading…')}</p>;
  }
  if (executions.length === 0) {
    return <p className="jex-Hint">{trans.__('Nothing has been run in this session.')}</p>;
  }
  return (
    <Executions
      executions={executions.slice(0, shown)}
      session={session}
      within={props.within}
      expandNewest={settings.expandNewest}
    >
      {(count > shown || !isWhole) && (
        <li>
          <button className="jex-Button" disabled={count < shown} onClick={() => setShown(shown + PAGE)}>
            {count < shown ? trans.__('Loading…') : trans.__('Show earlier')}
          </button>
        </li>
      )}
    </Executions>
  );
}

/** Rows of executions of one session, the newest first; the children come after them. */
export function Executions(props: {
  executions: readonly IExecution[];
  session: Pick<ISession, 'language' | 'state' | 'waits_for'>;
  within: string;
  expandNewest: boolean;
  children?: React.ReactNode;
}): React.ReactElement {
  const { executions } = props;
  const { trans } = useServices();
  const [toggled, setToggled] = React.useState<ReadonlyMap<string, boolean>>(new Map());
  const now = useNow(1, executions.some(isOpen));
  let day = dayWords(trans, new Date(now).toISOString(), now);
  return (
    <ol className="jex-Timeline" reversed aria-label={trans.__('Runs, newest first')}>
      {executions.map((execution, index) => {
        // A question must not be overlooked, and may not be the newest: others wait behind it.
        const asks = isAskingInput(execution, props.session);
        const open =
          toggled.get(execution.id) ??
          wasOpened(`execution ${execution.id}`) ??
          (asks || (index === 0 && props.expandNewest));
        const before = day;
        day = dayWords(trans, execution.created_at, now);
        return (
          <React.Fragment key={execution.id}>
            {day !== before && <li className="jex-Day">{day}</li>}
            <ExecutionRow
              execution={execution}
              session={props.session}
              within={props.within}
              open={open}
              now={isOpen(execution) ? now : 0}
              onToggle={setOpen => {
                rememberOpened(`execution ${execution.id}`, setOpen);
                setToggled(each => new Map(each).set(execution.id, setOpen));
              }}
            />
          </React.Fragment>
        );
      })}
      {props.children}
    </ol>
  );
}
