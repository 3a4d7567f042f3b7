/** One execution that waits: a line, and its code, what asked for it and the decision below it while it is open. */

import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IApproval, IPolicy } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { Code } from '../panel/code';
import { useExecState, useServices } from '../panel/services';
import {
  ageWords,
  headline,
  isolationMeaning,
  isolationWords,
  kindWords,
  ownerName,
  sessionName
} from '../words';
import { useWhileVisible } from '../panel/visible';
import { oneLine, reveal } from '../safety/text';
import { Changes } from './changes';
import { unixLines } from './diff';
import { CodeField } from './editor';
import { type IEntry, isEdited, kindsOf } from './entries';
import type { ApprovalQueue } from './queue';
import { seenCode } from './seen';
import { findingWords, goneWords, leftWords, rulesWords } from './approvalWords';

/** The server's limit. */
const MAX_NOTE_CHARS = 4096;
const LOOK_SECONDS = 60;

interface IProps {
  entry: IEntry;
  queue: ApprovalQueue;
  policies: readonly IPolicy[];
  /** In milliseconds. */
  now: number;
  onDecide: (id: string, approve: boolean) => void;
}

export const EntryRow = React.memo(function EntryRow(props: IProps): React.ReactElement {
  const { entry, queue, now } = props;
  const { trans } = useServices();
  const state = useExecState();
  const { execution, open, gone } = entry;
  const { id } = execution;
  const owner = state.sessions.get(execution.session_id)?.owner;
  const who =
    owner === undefined
      ? trans.__('An agent')
      : ownerName(trans, owner, state.tokens.get(owner) ?? null, state.info);
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <li className="jex-Execution jex-Approval" data-tone={gone ? 'stopped' : 'waiting'}>
      <div className="jex-Row">
        <button
          className="jex-Row-main"
          data-roving={`approval ${id}`}
          tabIndex={-1}
          aria-expanded={open}
          onClick={() => queue.open(id, !open)}
          title={headline(execution.code)}
        >
          <Caret.react tag="span" className="jex-Caret" />
          <span className="jex-Row-text">
            <code className="jex-Headline jex-Ellipsis">
              {headline(execution.code) || trans.__('(no code)')}
            </code>
            <span className="jex-Row-detail jex-Ellipsis">
              <span>{who}</span>
              {isEdited(entry) && <span>{trans.__('edited')}</span>}
              <span>{gone ? trans.__('already decided') : oneLine(execution.approval?.why ?? '')}</span>
            </span>
          </span>
          <span className="jex-Age">{ageWords(trans, execution.created_at, now)}</span>
        </button>
      </div>
      {open && <Details {...props} who={who} />}
    </li>
  );
});

function Details(props: IProps & { who: string }): React.ReactElement {
  const { entry, queue } = props;
  const { commands, trans, editors } = useServices();
  const session = useExecState().sessions.get(entry.execution.session_id);
  const { execution, original, gone } = entry;
  const { id } = execution;
  const [version, setVersion] = React.useState(0);
  const edited = isEdited(entry);
  const language = execution.language ?? session?.language ?? 'python';
  const kinds = kindsOf(entry).map(kind => kindWords(trans, kind));
  const marks = React.useMemo(() => marksOf(execution.approval), [execution.approval]);
  const decide = (yes: boolean): void => props.onDecide(id, yes);
  const element = React.useRef<HTMLDivElement>(null);
  useWhileVisible(
    element,
    LOOK_SECONDS,
    true,
    React.useCallback(() => seenCode.add(id), [id])
  );

  return (
    <div className="jex-Details" ref={element}>
      {gone && (
        <p className="jex-Note jex-Warn" role="alert">
          {entry.problem === null ? goneWords(trans, execution) : oneLine(entry.problem, 500)}
        </p>
      )}
      {original === null ? (
        entry.problem === null && <p className="jex-Note">{trans.__('Loading the code…')}</p>
      ) : (
        <>
          {hasInvisible(original) && (
            <>
              <p className="jex-Note jex-Warn">
                {trans.__(
                  'This code has characters that are invisible or reorder text. Here it is with them shown:'
                )}
              </p>
              <Code code={original} language={language} />
            </>
          )}
          <CodeField
            key={version}
            value={entry.draft ?? original}
            language={language}
            label={trans.__('Code to approve')}
            services={editors}
            marks={marks}
            readOnly={entry.sending || gone}
            onChange={text => queue.edit(id, text)}
          />
          {edited && (
            <Changes before={original} after={entry.draft ?? ''} label={trans.__('What you have changed')} />
          )}
        </>
      )}
      {/* Below the code: what is decided about is in view where there is room for little. */}
      <Facts {...props} />
      {!gone && entry.problem !== null && (
        <p className="jex-Note jex-Warn" role="alert">
          {oneLine(entry.problem, 500)}
        </p>
      )}
      {gone ? (
        <p className="jex-Actions">
          {edited && (
            <button
              className="jex-Button"
              onClick={() => void commands.execute(CommandIDs.copyCode, { code: entry.draft ?? '' })}
            >
              {trans.__('Copy your code')}
            </button>
          )}
          <button className="jex-Button" onClick={() => queue.dismiss(id)}>
            {trans.__('Dismiss')}
          </button>
        </p>
      ) : (
        <form
          className="jex-Decision"
          onSubmit={event => {
            event.preventDefault();
            decide(true);
          }}
        >
          <label>
            <span>{trans.__('Note to the agent (optional)')}</span>
            <input
              className="jex-Input"
              type="text"
              autoComplete="off"
              maxLength={MAX_NOTE_CHARS}
              placeholder={trans.__('such as why you reject it')}
              value={entry.note}
              // Enter in this field decides nothing: it is too easily pressed.
              onKeyDown={event => event.key === 'Enter' && event.preventDefault()}
              onChange={event => queue.note(id, event.target.value)}
            />
          </label>
          {kinds.length > 0 && (
            <label className="jex-Check">
              <input
                type="checkbox"
                checked={entry.forSession}
                disabled={entry.sending}
                onChange={event => queue.allowForSession(id, event.target.checked)}
              />
              <span>{trans.__('Approve from now on in this session: %1', kinds.join(', '))}</span>
            </label>
          )}
          <div className="jex-Actions">
            <button
              className="jex-Button jex-Primary"
              type="submit"
              disabled={original === null || entry.sending}
            >
              {edited ? trans.__('Approve as edited') : trans.__('Approve')}
            </button>
            <button
              className="jex-Button"
              type="button"
              disabled={entry.sending}
              onClick={() => decide(false)}
            >
              {trans.__('Reject')}
            </button>
            {edited && (
              <button
                className="jex-Button"
                type="button"
                disabled={entry.sending}
                onClick={() => {
                  queue.edit(id, null);
                  setVersion(version + 1);
                }}
              >
                {trans.__('Undo edits')}
              </button>
            )}
            {original === null && entry.problem !== null && (
              <button className="jex-Button" type="button" onClick={() => queue.open(id, true)}>
                {trans.__('Load the code again')}
              </button>
            )}
          </div>
        </form>
      )}
    </div>
  );
}

/** Facts for the decision: the token, its policy, the session, and the time left. */
function Facts(props: IProps & { who: string }): React.ReactElement {
  const { entry, who, policies, now } = props;
  const { trans } = useServices();
  const state = useExecState();
  const { execution } = entry;
  const { approval } = execution;
  const session = state.sessions.get(execution.session_id);
  const token = session && state.tokens.get(session.owner);
  const policyOfToken = policies.find(each => each.name === token?.policy);
  const rule = rulesWords(trans, policyOfToken, token);
  const facts: [string, string, string?][] = [[trans.__('From'), who, who]];
  if (token !== undefined) {
    const policy = oneLine(token.policy, 80);
    facts.push([
      trans.__('Policy'),
      rule === '' ? policy : trans.__('%1, which asks about: %2', policy, rule)
    ]);
  }
  if (approval !== null) {
    facts.push([trans.__('Reason'), findingWords(trans, approval).join('; ')]);
  }
  if (session !== undefined) {
    facts.push([trans.__('Session'), sessionName(session), `${sessionName(session)}\n${session.id}`]);
    facts.push([
      trans.__('Isolation'),
      isolationWords(trans, session.isolation),
      isolationMeaning(trans, session.isolation)
    ]);
  }
  if (approval !== null && !entry.gone) {
    const until = new Date(approval.expires_at).toLocaleString();
    facts.push([trans.__('Time left'), leftWords(trans, approval.expires_at, now), until]);
  }
  return (
    <dl className="jex-Facts jex-Approval-facts">
      {facts.map(([name, value, title]) => (
        <React.Fragment key={name}>
          <dt>{name}</dt>
          <dd className={title === undefined ? '' : 'jex-Ellipsis'} title={title}>
            {value}
          </dd>
        </React.Fragment>
      ))}
    </dl>
  );
}

/** The lines that ask, from 1, with the reasons. */
function marksOf(approval: IApproval | null): ReadonlyMap<number, string> {
  const marks = new Map<number, string>();
  for (const { line, why } of approval?.findings ?? []) {
    if (line !== null) {
      const before = marks.get(line);
      marks.set(line, before === undefined ? oneLine(why, 300) : `${before}; ${oneLine(why, 300)}`);
    }
  }
  return marks;
}

function hasInvisible(code: string): boolean {
  return reveal(code) !== unixLines(code);
}
