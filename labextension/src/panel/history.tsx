/** History of a session: its checkpoints, restores and branches, with what can be done with a checkpoint. */

import { addIcon, caretDownIcon, caretRightIcon, deleteIcon, undoIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ICheckpoint, IExecution, ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { branchIcon } from '../icons';
import {
  canBranch,
  canCheckpoint,
  changesCheckpoints,
  type HistoryEntry,
  historyOf,
  HistoryTree
} from '../model/history';
import { oneLine } from '../safety/text';
import { IconButton } from './button';
import { afterWords, checkpointName, lostWords, restoreWords, runName } from './historyWords';
import { useOpened } from './opened';
import { Row } from './row';
import { useExecState, useServices } from './services';
import { useWhileVisible } from './visible';
import { clockWords, sessionName, sizeWords } from '../words';

/** Shown at once, and more with each click. */
const PAGE = 10;
/** How often the memory of checkpoints is looked up, while they are in view. */
const MEASURE_SECONDS = 30;

const NONE: readonly ICheckpoint[] = [];

export function History(props: { session: ISession; within: string }): React.ReactElement | null {
  const { session } = props;
  const { commands, trans } = useServices();
  const state = useExecState();
  const isAllowed = canCheckpoint(state.info, session);
  const element = React.useRef<HTMLDivElement>(null);
  const checkpoints = useCheckpoints(session.id, isAllowed, element);
  const key = `history ${session.id}`;
  const [open, setOpen] = useOpened(key, true);
  const origin = session.branch_of ?? null;
  const entries = historyOf(session, checkpoints, state.sessions.values());
  const problem = session.auto_checkpoint_problem ?? null;
  if (!isAllowed && origin === null && problem === null && entries.length === 0) {
    return null;
  }
  const make = (): void => void commands.execute(CommandIDs.checkpoint, { sessionId: session.id });
  const makeLabel = trans.__('Make a checkpoint of %1', sessionName(session));
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <div className="jex-History" ref={element}>
      {origin !== null && (
        <p className="jex-Note">
          {trans.__('Branch of another session:')} <SessionLink sessionId={origin} />
        </p>
      )}
      {problem !== null && (
        <p className="jex-Note jex-Warn">
          {trans.__('The last run has no checkpoint: %1', oneLine(problem, 500))}
        </p>
      )}
      <div className="jex-History-header">
        {entries.length > 0 && (
          <button
            className="jex-Row-main"
            data-roving={key}
            data-within={props.within}
            tabIndex={-1}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          >
            <Caret.react tag="span" className="jex-Caret" />
            {trans.__('Checkpoints: %1', checkpoints.length)}
          </button>
        )}
        {isAllowed &&
          (entries.length > 0 ? (
            <IconButton icon={addIcon} label={makeLabel} onClick={make} />
          ) : (
            <button className="jex-Link" title={makeLabel} onClick={make}>
              {trans.__('Make Checkpoint…')}
            </button>
          ))}
      </div>
      {open && entries.length > 0 && (
        <Entries session={session} entries={entries} checkpoints={checkpoints} within={key} />
      )}
    </div>
  );
}

/** A session's checkpoints, looked up when the session is opened, and again when the feed tells of a change. */
function useCheckpoints(
  sessionId: string,
  isAllowed: boolean,
  element: React.RefObject<Element>
): readonly ICheckpoint[] {
  const { model } = useServices();
  const [checkpoints, setCheckpoints] = React.useState(NONE);
  const look = React.useRef<() => void>(() => undefined);
  React.useEffect(() => {
    setCheckpoints(NONE);
    if (!isAllowed) {
      return undefined;
    }
    let gone = false;
    let looking = false;
    let again = false;
    // One request at a time: a change meanwhile is looked up after it.
    const update = async (): Promise<void> => {
      again = looking;
      if (looking) {
        return;
      }
      looking = true;
      try {
        const found = await model.client.checkpoints(sessionId);
        if (!gone) {
          setCheckpoints(found);
        }
      } catch (error) {
        console.debug(`The checkpoints of session ${sessionId} could not be listed.`, error);
      }
      looking = false;
      if (again && !gone) {
        void update();
      }
    };
    look.current = () => void update();
    const onEvent = (_: unknown, event: Parameters<typeof changesCheckpoints>[0]): void => {
      if (changesCheckpoints(event, sessionId)) {
        void update();
      }
    };
    model.fed.connect(onEvent);
    void update();
    return () => {
      gone = true;
      look.current = () => undefined;
      model.fed.disconnect(onEvent);
    };
  }, [model, sessionId, isAllowed]);
  const measure = React.useCallback(() => look.current(), []);
  useWhileVisible(element, MEASURE_SECONDS, checkpoints.length > 0, measure);
  return checkpoints;
}

interface IEntries {
  readonly session: ISession;
  readonly checkpoints: readonly ICheckpoint[];
  readonly within: string;
}

function Entries(props: IEntries & { entries: readonly HistoryEntry[] }): React.ReactElement {
  const { session, entries, checkpoints } = props;
  const { trans } = useServices();
  const [shown, setShown] = React.useState(PAGE);
  const executions = useExecState().executions.get(session.id);
  const { restores } = session;
  const history = React.useMemo(
    () => new HistoryTree(executions ?? [], restores ?? []),
    [executions, restores]
  );
  return (
    <ol
      className="jex-History-entries"
      reversed
      aria-label={trans.__('Checkpoints and restores, newest first')}
    >
      {entries.slice(0, shown).map(entry => {
        switch (entry.type) {
          case 'checkpoint': {
            const { checkpoint } = entry;
            return (
              <CheckpointRow
                key={checkpoint.id}
                {...props}
                checkpoint={checkpoint}
                executions={executions}
                isLeft={!history.isOnLine(checkpoint.after)}
              />
            );
          }
          case 'restore':
            return (
              <li className="jex-History-event" key={`${entry.at} ${entry.restore.checkpoint}`}>
                <span>{restoreWords(trans, entry.restore, checkpoints, executions)}</span>
                <Clock at={entry.at} />
              </li>
            );
          case 'branch':
            return (
              <li className="jex-History-event" key={entry.branch.id}>
                <span>
                  {trans.__('branch:')} <SessionLink sessionId={entry.branch.id} />
                </span>
                <Clock at={entry.at} />
              </li>
            );
        }
      })}
      {entries.length > shown && (
        <li>
          <button className="jex-Button" onClick={() => setShown(shown + PAGE)}>
            {trans.__('Show earlier')}
          </button>
        </li>
      )}
    </ol>
  );
}

function CheckpointRow(
  props: IEntries & {
    checkpoint: ICheckpoint;
    executions: readonly IExecution[] | undefined;
    /** True if the session's present state does not come of it. */
    isLeft: boolean;
  }
): React.ReactElement {
  const { session, checkpoint, executions } = props;
  const { commands, model, trans } = useServices();
  const [open, setOpen] = React.useState(false);
  const name = checkpointName(trans, checkpoint);
  const run = (command: string): void =>
    void commands.execute(command, { sessionId: session.id, checkpoint: checkpoint.id });
  const actions = [
    {
      label: trans.__('Restore'),
      full: trans.__('Restore to %1', name),
      icon: undoIcon,
      id: CommandIDs.restore
    },
    ...(canBranch(model.state.info, session)
      ? [
          {
            label: trans.__('Branch'),
            full: trans.__('Branch from %1', name),
            icon: branchIcon,
            id: CommandIDs.branch
          }
        ]
      : []),
    {
      label: trans.__('Delete'),
      full: trans.__('Delete %1', name),
      icon: deleteIcon,
      id: CommandIDs.deleteCheckpoint
    }
  ];
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <li className="jex-Checkpoint" data-left={props.isLeft}>
      <Row
        main={
          <button
            className="jex-Row-main"
            data-roving={`checkpoint ${checkpoint.id}`}
            data-within={props.within}
            tabIndex={-1}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
            title={name}
          >
            <Caret.react tag="span" className="jex-Caret" />
            <span className="jex-Row-text">
              <span className="jex-Row-name jex-Ellipsis">{name}</span>
              <span className="jex-Row-detail jex-Ellipsis">
                <span>{afterWords(trans, checkpoint.after, executions)}</span>
                {props.isLeft && <span>{trans.__('other line')}</span>}
                {checkpoint.memory_bytes !== null && <span>{sizeWords(checkpoint.memory_bytes)}</span>}
                {checkpoint.lost.length > 0 && (
                  <span className="jex-Warn">
                    {trans._n('without one thing', 'without %1 things', checkpoint.lost.length)}
                  </span>
                )}
              </span>
            </span>
            <Clock at={checkpoint.created_at} />
          </button>
        }
        actions={() => (
          <>
            {actions.map(({ icon, full, id }) => (
              <IconButton key={id} icon={icon} label={full} onClick={() => run(id)} />
            ))}
          </>
        )}
      />
      {open && (
        <div className="jex-Details">
          <CheckpointFacts checkpoint={checkpoint} executions={executions} />
          {actions.map(({ label, full, id }) => (
            <button key={id} className="jex-Button" title={full} aria-label={full} onClick={() => run(id)}>
              {label}
            </button>
          ))}
        </div>
      )}
    </li>
  );
}

function CheckpointFacts(props: {
  checkpoint: ICheckpoint;
  executions: readonly IExecution[] | undefined;
}): React.ReactElement {
  const { checkpoint, executions } = props;
  const { trans } = useServices();
  const last = executions?.find(each => each.id === checkpoint.after);
  return (
    <ul className="jex-Note">
      {last !== undefined && <li>{trans.__('After: %1', runName(trans, last))}</li>}
      <li>{trans.__('Created: %1', new Date(checkpoint.created_at).toLocaleString())}</li>
      {checkpoint.memory_bytes !== null && (
        <li>{trans.__('Memory: %1, beside that of the session', sizeWords(checkpoint.memory_bytes))}</li>
      )}
      {!checkpoint.files && <li>{trans.__('Without files')}</li>}
      {checkpoint.lost.map((thing, index) => (
        <li key={index} className="jex-Warn">
          {lostWords(trans, thing)}
        </li>
      ))}
    </ul>
  );
}

function Clock({ at }: { at: string }): React.ReactElement {
  return (
    <time className="jex-Age" dateTime={at} title={new Date(at).toLocaleString()}>
      {clockWords(at)}
    </time>
  );
}

/** Leads to another session, if it is listed. */
function SessionLink({ sessionId }: { sessionId: string }): React.ReactElement {
  const { commands } = useServices();
  const session = useExecState().sessions.get(sessionId);
  return session === undefined ? (
    <>{sessionId}</>
  ) : (
    <button className="jex-Link" onClick={() => void commands.execute(CommandIDs.showSession, { sessionId })}>
      {sessionName(session)}
    </button>
  );
}
