/** Executions, the newest first, as they happen, with a line where a day begins. */

import * as React from 'react';

import { isOpen } from '../model/state';
import type { IExecution, ISession } from '../api/types';
import { HistoryTree } from '../model/history';
import { ExecutionRow, type SessionOfRun } from './execution';
import { rememberOpened, wasOpened } from './opened';
import { useExecState, useNow, useServices } from './services';
import { dayWords, isAskingInput } from '../words';

/** Shown at once, and more with each click. */
const PAGE = 20;

/** A session that has ended, and is not listed. */
export const UNLISTED: SessionOfRun = { language: 'python', state: 'ended', waits_for: null };

/** The executions of a session, as many as somebody asks for. */
export function Timeline(props: { session: ISession; within: string }): React.ReactElement {
  const { session } = props;
  const { model, settings, trans } = useServices();
  const state = useExecState();
  React.useEffect(() => model.watch(session.id), [model, session.id]);
  const earlier = React.useCallback(() => model.earlier(session.id), [model, session.id]);
  const executions = state.executions.get(session.id);
  const { restores } = session;
  const history = React.useMemo(
    () => (restores?.length && executions ? new HistoryTree(executions, restores) : null),
    [executions, restores]
  );
  return (
    <Pages
      executions={executions}
      isWhole={state.whole.has(session.id)}
      earlier={earlier}
      sessionOf={() => session}
      isLeft={({ id }) => history?.isOnLine(id) === false}
      within={props.within}
      expandNewest={settings.expandNewest}
      nothing={trans.__('Nothing has been run in this session.')}
    />
  );
}

interface IRows {
  readonly sessionOf: (execution: IExecution) => SessionOfRun;
  /** Names the session of each row, in a list of several sessions. */
  readonly whereOf?: (execution: IExecution) => string;
  /** True for a run that a restore has left. */
  readonly isLeft?: (execution: IExecution) => boolean;
  readonly within: string;
  readonly expandNewest: boolean;
}

/** Rows of executions, page by page. */
export function Pages(
  props: IRows & {
    /** The newest first; undefined while they are not known. */
    executions: readonly IExecution[] | undefined;
    /** True if none came before them. */
    isWhole: boolean;
    /** List those that came before them. */
    earlier: () => Promise<unknown>;
    /** Words for no executions. */
    nothing: string;
  }
): React.ReactElement {
  const { executions, isWhole, earlier, nothing, ...rows } = props;
  const { trans } = useServices();
  const [shown, setShown] = React.useState(PAGE);
  const count = executions?.length ?? 0;
  React.useEffect(() => {
    if (count > 0 && count < shown && !isWhole) {
      earlier().catch(reason => {
        console.warn('Earlier executions could not be listed.', reason);
        setShown(count);
      });
    }
    // Not the count alone: of several sessions, one may have nothing to add.
  }, [executions, earlier, count, shown, isWhole]);

  if (executions === undefined) {
    return <p className="jex-Hint">{trans.__('Loading…')}</p>;
  }
  if (executions.length === 0) {
    return <p className="jex-Hint">{nothing}</p>;
  }
  return (
    <Executions {...rows} executions={executions.slice(0, shown)}>
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

/** Rows of executions, the newest first; the children come after them. */
export function Executions(
  props: IRows & { executions: readonly IExecution[]; children?: React.ReactNode }
): React.ReactElement {
  const { executions } = props;
  const { trans } = useServices();
  const [toggled, setToggled] = React.useState<ReadonlyMap<string, boolean>>(new Map());
  const now = useNow(1, executions.some(isOpen));
  let day = dayWords(trans, new Date(now).toISOString(), now);
  return (
    <ol className="jex-Timeline" reversed aria-label={trans.__('Runs, newest first')}>
      {executions.map((execution, index) => {
        // A question must not be overlooked, and may not be the newest: others wait behind it.
        const session = props.sessionOf(execution);
        const asks = isAskingInput(execution, session);
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
              session={session}
              where={props.whereOf?.(execution)}
              isLeft={props.isLeft?.(execution) ?? false}
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
