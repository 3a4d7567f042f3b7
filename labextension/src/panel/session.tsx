/** One session: a line, and its executions below it while it is open. */

import { caretDownIcon, caretRightIcon, closeIcon, ellipsesIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { kernelWords } from '../kernelNames';
import { oneLine } from '../safety/text';
import { ApprovedKinds } from './approved';
import { IconButton } from './button';
import { History } from './history';
import { useOpened } from './opened';
import { Network } from './network';
import { OpenPorts } from './ports';
import { revealItem } from './reveal';
import { Row } from './row';
import { useServices } from './services';
import { Timeline } from './timeline';
import { usePendingFocus, wantedAnswer, wantedSession } from './pendingFocus';
import {
  ageWords,
  isolationMeaning,
  isolationWords,
  lastOutcomeWords,
  sessionName,
  sizeWords,
  standingWords
} from '../words';

export const SessionRow = React.memo(function SessionRow(props: {
  session: ISession;
  /** Memory of its kernel, in bytes. */
  memory: number | undefined;
  now: number;
  /** The `data-roving` of its group. */
  within: string;
}) {
  const { session, now } = props;
  const memory = props.memory === undefined || session.state === 'ended' ? null : sizeWords(props.memory);
  const { commands, trans, openMenu } = useServices();
  const key = `session ${session.id}`;
  const [open, setOpen] = useOpened(key, false);
  const row = React.useRef<HTMLButtonElement>(null);
  usePendingFocus(wantedAnswer, id => id === session.id && setOpen(true));
  usePendingFocus(wantedSession, id => {
    if (row.current !== null && id === session.id && wantedSession.take(id)) {
      setOpen(true);
      row.current.focus();
      revealItem(row.current);
    }
  });
  const name = sessionName(session);
  const state = standingWords(trans, session);
  const refused = session.wanted_rules?.length ?? 0;
  const outcome = lastOutcomeWords(trans, session);
  const run = (command: string): void => void commands.execute(command, { sessionId: session.id });
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <li className="jex-Session" data-state={session.state}>
      <Row
        onContextMenu={event => {
          event.preventDefault();
          event.stopPropagation();
          // The menu key has no place of its own.
          const box = event.currentTarget.getBoundingClientRect();
          openMenu(session.id, event.clientX || box.left + 24, event.clientY || box.bottom);
        }}
        main={
          <button
            ref={row}
            className="jex-Row-main"
            data-roving={key}
            data-within={props.within}
            tabIndex={-1}
            aria-expanded={open}
            onClick={event => {
              setOpen(!open);
              if (!open) {
                revealItem(event.currentTarget);
              }
            }}
            onDoubleClick={() => run(CommandIDs.openView)}
            onKeyDown={event => {
              if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                run(CommandIDs.openView);
              }
            }}
            title={describe(session, name)}
          >
            <Caret.react tag="span" className="jex-Caret" />
            <span className="jex-Dot" data-tone={session.waits_for === null ? session.state : 'waiting'} />
            <span className="jex-Row-text">
              <span className="jex-Row-name jex-Ellipsis">{name}</span>
              <span className="jex-Row-detail jex-Ellipsis">
                <span className={session.waits_for === null ? '' : 'jex-Warn'}>{state}</span>
                {refused > 0 && <span className="jex-Warn">{trans.__('network: %1 refused', refused)}</span>}
                {outcome !== null && <span className="jex-Outcome">{trans.__('last run: %1', outcome)}</span>}
                <span className={session.isolation === 'none' ? 'jex-Warn' : ''}>
                  {isolationWords(trans, session.isolation)}
                </span>
                {session.attached && <span>{trans.__('attached')}</span>}
                <span>{kernelWords(trans, oneLine(session.kernel_name, 60))}</span>
                {memory !== null && <span>{memory}</span>}
              </span>
            </span>
            <span className="jex-Age">{ageWords(trans, session.created_at, now)}</span>
          </button>
        }
        actions={() => (
          <>
            {session.state === 'busy' && (
              <IconButton
                icon={stopIcon}
                label={trans.__('Interrupt %1', name)}
                onClick={() => run(CommandIDs.interrupt)}
              />
            )}
            {session.state !== 'ended' && (
              <IconButton
                icon={closeIcon}
                label={trans.__('Shut down %1', name)}
                onClick={() => run(CommandIDs.shutdown)}
              />
            )}
            <IconButton
              icon={ellipsesIcon}
              label={trans.__('More actions for %1', name)}
              popup
              onClick={event => {
                const box = event.currentTarget.getBoundingClientRect();
                openMenu(session.id, box.left, box.bottom);
              }}
            />
          </>
        )}
      />
      {open && <ApprovedKinds session={session} />}
      {open && <OpenPorts session={session} />}
      {open && <Network session={session} />}
      {open && <History session={session} within={key} />}
      {open && <Timeline session={session} within={key} />}
    </li>
  );

  function restarts(count: number): string[] {
    return count > 0 ? [trans._n('restarted once', 'restarted %1 times', count)] : [];
  }

  function describe(each: ISession, called: string): string {
    const lines = [
      called,
      trans.__('State: %1', state),
      trans.__('Kernel: %1', kernelWords(trans, oneLine(each.kernel_name, 60))),
      ...restarts(each.kernel_starts - 1),
      trans.__(
        'Isolation: %1. %2',
        isolationWords(trans, each.isolation),
        isolationMeaning(trans, each.isolation)
      ),
      ...(memory === null ? [] : [trans.__('Memory: %1, with the processes below the kernel', memory)]),
      trans.__('Created: %1', new Date(each.created_at).toLocaleString()),
      trans.__('Last activity: %1', new Date(each.last_activity_at).toLocaleString()),
      trans.__('Id: %1', each.id),
      trans.__('Double-click or Ctrl Enter: open it in the main area')
    ];
    return each.ended_reason === null ? lines.join('\n') : [...lines, oneLine(each.ended_reason)].join('\n');
  }
});
