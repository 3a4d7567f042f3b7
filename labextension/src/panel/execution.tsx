/** One execution: a line, and its code and outputs below it while it is open. */

import { caretDownIcon, caretRightIcon, copyIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IExecution, ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { isOpen } from '../model/state';
import { oneLine } from '../safety/text';
import { IconButton } from './button';
import { Code } from './code';
import { Edited } from '../approvals/edited';
import { FileLinks } from './files';
import { Outputs } from './outputs';
import { revealItem } from './reveal';
import { Row } from './row';
import { useServices } from './services';
import {
  clockWords,
  durationWords,
  executionWords,
  headline,
  isAskingInput,
  ranSeconds,
  tone
} from '../words';

/** Fields of the session that a row of its run shows. */
export type SessionOfRun = Pick<ISession, 'language' | 'state' | 'waits_for'>;

interface IProps {
  execution: IExecution;
  session: SessionOfRun;
  within: string;
  /** Name of the session, in a list of several. */
  where?: string | undefined;
  /** True for a run that a restore has left. */
  isLeft?: boolean;
  open: boolean;
  /** In milliseconds; counts only while it runs. */
  now: number;
  onToggle: (open: boolean) => void;
}

export const ExecutionRow = React.memo(function ExecutionRow(props: IProps): React.ReactElement {
  const { execution, open } = props;
  const { commands, trans } = useServices();
  const state = executionWords(trans, execution, props.session);
  const seconds = ranSeconds(execution, props.now);
  const Caret = open ? caretDownIcon : caretRightIcon;
  const title = headline(execution.code);
  return (
    <li
      className="jex-Execution"
      data-tone={isAskingInput(execution, props.session) ? 'waiting' : tone(execution.state)}
      data-left={props.isLeft}
    >
      <Row
        main={
          <button
            className="jex-Row-main"
            data-roving={`execution ${execution.id}`}
            data-within={props.within}
            tabIndex={-1}
            aria-expanded={open}
            onClick={event => {
              props.onToggle(!open);
              if (!open) {
                revealItem(event.currentTarget);
              }
            }}
            title={title}
          >
            <Caret.react tag="span" className="jex-Caret" />
            {props.where !== undefined && <span className="jex-Where jex-Ellipsis">{props.where}</span>}
            <span className="jex-Prompt">[{execution.execution_count ?? ' '}]</span>
            <span className="jex-Row-text">
              <code className="jex-Headline jex-Ellipsis">{title || trans.__('(no code)')}</code>
              {/* It has a line of its own: what went wrong is what a person looks for. */}
              {execution.state === 'error' && <span className="jex-State jex-Ellipsis">{state}</span>}
              {props.isLeft && (
                <span
                  className="jex-State jex-Ellipsis"
                  title={trans.__('The session was restored to a checkpoint before this run')}
                >
                  {trans.__('other line')}
                </span>
              )}
            </span>
            {execution.approval?.decision === 'edited' && (
              <span className="jex-State">{trans.__('edited')}</span>
            )}
            {/* Success needs no word; the run time says it. */}
            {execution.state !== 'error' && (
              <span className={execution.state === 'ok' ? 'jex-Hidden' : 'jex-State jex-Ellipsis'}>
                {state}
              </span>
            )}
            {seconds !== null && <span className="jex-Age">{durationWords(trans, seconds)}</span>}
            <time className="jex-Age jex-Time" dateTime={execution.created_at}>
              {clockWords(execution.created_at)}
            </time>
          </button>
        }
        actions={() => (
          <>
            {isOpen(execution) && (
              <IconButton
                icon={stopIcon}
                label={trans.__('Cancel this run')}
                onClick={() => void commands.execute(CommandIDs.cancel, { executionId: execution.id })}
              />
            )}
            <IconButton
              icon={copyIcon}
              label={trans.__('Copy this code')}
              onClick={() => void commands.execute(CommandIDs.copyCode, { code: execution.code })}
            />
          </>
        )}
      />
      {open && <Details {...props} />}
    </li>
  );
}, sameRow);

/** Compare all but callbacks, which are new each time and do the same. */
function sameRow(a: IProps, b: IProps): boolean {
  return (
    a.execution === b.execution &&
    a.open === b.open &&
    a.now === b.now &&
    a.where === b.where &&
    a.isLeft === b.isLeft &&
    a.session.state === b.session.state &&
    a.session.waits_for === b.session.waits_for &&
    a.session.language === b.session.language
  );
}

function Details({ execution, session }: IProps): React.ReactElement {
  const { trans, Files = FileLinks } = useServices();
  const approval = execution.approval;
  return (
    <div className="jex-Details">
      <Edited execution={execution} />
      <Code code={execution.code} language={execution.language ?? session.language} />
      {approval !== null && approval.decision === null && (
        <p className="jex-Note">{trans.__('Needs approval: %1', oneLine(approval.why))}</p>
      )}
      {approval?.reason && (
        <p className="jex-Note">{trans.__('Note with the decision: %1', oneLine(approval.reason))}</p>
      )}
      {execution.started_at !== null && <Outputs execution={execution} />}
      {execution.reason !== null && <p className="jex-Note">{oneLine(execution.reason, 1000)}</p>}
      <Files execution={execution} />
    </div>
  );
}
