/** The section of all sessions: search, filter, and the sessions of each owner. */

import { caretDownIcon, caretRightIcon, closeIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IExecState } from '../model/state';
import { SESSION_ARGS, text } from '../commands/args';
import { CommandIDs } from '../commands/ids';
import { groups, type IFilter, type IGroup, inOrderOf, isAlive, NO_FILTER, type Order } from '../model/view';
import { IconButton } from './button';
import { expand } from './expand';
import { NotConnected, useIsNotConnected } from './notConnected';
import { useOpened } from './opened';
import { useRoving } from './roving';
import { Row } from './row';
import { isSearched, SearchResults } from './search';
import { commandToolbar, type ISection, SectionWidget } from './section';
import { SessionRow } from './session';
import { type IServices, useExecState, useNow, useServices } from './services';
import { useWhileVisible } from './visible';
import { usePendingFocus, wantedAnswer, wantedSession } from './pendingFocus';
import { ownerName } from '../words';

/** How often it is looked up what sessions use, while they are in view. */
const MEASURE_SECONDS = 10;

const ID = 'jupyter-exec-ext-sessions';

export const sessionsSection: ISection = {
  id: ID,
  title: trans => trans.__('Sessions'),
  create
};

function create(services: IServices): SectionWidget {
  const { commands, trans } = services;
  const toolbar = commandToolbar(commands, [CommandIDs.interruptAll, CommandIDs.attach, CommandIDs.help]);
  const widget = new SectionWidget(sessionsSection, services, <Sessions />, toolbar);
  commands.addCommand(CommandIDs.answerInput, {
    label: trans.__('Answer Code That Waits for Input'),
    describedBy: SESSION_ARGS,
    execute: async args => {
      await commands.execute(CommandIDs.open);
      expand(widget);
      wantedAnswer.want(text(args, 'sessionId'));
    }
  });
  commands.addCommand(CommandIDs.showSession, {
    label: trans.__('Show Session in Panel'),
    describedBy: SESSION_ARGS,
    execute: async args => {
      await commands.execute(CommandIDs.open);
      expand(widget);
      wantedSession.want(text(args, 'sessionId'));
    }
  });
  return widget;
}

function Sessions(): React.ReactElement {
  const { model, settings } = useServices();
  const state = useExecState();
  const [filter, setFilter] = React.useState<IFilter>({
    ...NO_FILTER,
    ended: settings.showEnded,
    order: settings.order
  });
  const now = useNow(30);
  const roving = useRoving();
  React.useEffect(() => {
    const update = (): void =>
      setFilter(each => ({ ...each, ended: settings.showEnded, order: settings.order }));
    settings.changed.connect(update);
    return () => {
      settings.changed.disconnect(update);
    };
  }, [settings]);
  React.useEffect(() => {
    model
      .listEnded(filter.ended)
      .catch(reason => console.warn('Ended sessions could not be listed.', reason));
  }, [model, filter.ended]);

  usePendingFocus(wantedSession, id => setFilter(each => showing(id, model.state, each)));

  const element = React.useRef<HTMLDivElement>(null);
  const alive = React.useMemo(() => isAnyAlive(state), [state]);
  const measure = React.useCallback(() => {
    model.measure().catch(reason => console.warn('What sessions use could not be looked up.', reason));
  }, [model]);
  useWhileVisible(element, MEASURE_SECONDS, alive, measure);

  // Typed text appears at once; the rows follow.
  const [deferredState, deferredFilter] = [React.useDeferredValue(state), React.useDeferredValue(filter)];
  const last = React.useRef<{ filter: IFilter; groups: readonly IGroup[] }>({ filter, groups: [] });
  const shown = React.useMemo(() => {
    const next = groups(deferredState, deferredFilter);
    const { filter: before, groups: shownBefore } = last.current;
    const hold = before === deferredFilter && isInUse(element.current);
    last.current = { filter: deferredFilter, groups: hold ? inOrderOf(next, shownBefore) : next };
    return last.current.groups;
  }, [deferredState, deferredFilter]);
  return (
    <div className="jex-Sessions" ref={element}>
      <FilterBar filter={filter} onChange={setFilter} />
      {shown.length === 0 && !isSearched(filter.query) && <Empty filtered={isFiltered(deferredFilter)} />}
      <div className="jex-Groups" ref={roving.ref} onKeyDown={roving.onKeyDown} onFocus={roving.onFocus}>
        {shown.map(group => (
          <Group key={group.principal} group={group} state={state} now={now} />
        ))}
        <SearchResults text={filter.query} />
      </div>
    </div>
  );
}

/** Return the filter, or one that does not hide a session. */
function showing(sessionId: string, state: IExecState, filter: IFilter): IFilter {
  const isShown = groups(state, filter).some(group => group.sessions.some(each => each.id === sessionId));
  const session = state.sessions.get(sessionId);
  const ended = filter.ended || session === undefined || !isAlive(session);
  return isShown ? filter : { ...filter, query: '', show: 'all', ended };
}

/** Return whether the mouse or the focus is on a row. */
function isInUse(element: HTMLElement | null): boolean {
  return element?.querySelector('.jex-Row:is(:hover, :focus-within)') != null;
}

function isAnyAlive(state: IExecState): boolean {
  return (
    state.connection.status === 'live' && [...state.sessions.values()].some(each => each.state !== 'ended')
  );
}

/** Return whether a filter hides sessions; the choice of ended ones is none. */
function isFiltered(filter: IFilter): boolean {
  return filter.query !== '' || filter.show !== 'all';
}

function Group(props: { group: IGroup; state: IExecState; now: number }): React.ReactElement {
  const { commands, trans } = useServices();
  const { info, memory } = props.state;
  const { principal, token, sessions } = props.group;
  const name = ownerName(trans, principal, token, info);
  const kind = token === null ? '' : trans.__('token, policy %1', token.policy);
  const key = `group ${principal}`;
  const [open, setOpen] = useOpened(key, true);
  usePendingFocus(wantedSession, id => !open && sessions.some(each => each.id === id) && setOpen(true));
  const Caret = open ? caretDownIcon : caretRightIcon;
  const run = (command: string): void => void commands.execute(command, { owner: principal });
  return (
    <section className="jex-Group" aria-label={trans.__('Sessions of %1', name)}>
      <Row
        main={
          <h3 className="jex-Group-title">
            <button
              className="jex-Row-main"
              data-roving={key}
              tabIndex={-1}
              aria-expanded={open}
              onClick={() => setOpen(!open)}
              title={kind ? `${name} (${kind})` : name}
            >
              <Caret.react tag="span" className="jex-Caret" />
              <span className="jex-Ellipsis">{name}</span>
              {kind && <span className="jex-Group-kind">{kind}</span>}
              <span className="jex-Count">{sessions.length}</span>
            </button>
          </h3>
        }
        actions={() => (
          <>
            {sessions.some(each => each.state === 'busy') && (
              <IconButton
                icon={stopIcon}
                label={trans.__('Interrupt all of %1', name)}
                onClick={() => run(CommandIDs.interruptAll)}
              />
            )}
            {sessions.some(isAlive) && (
              <IconButton
                icon={closeIcon}
                label={trans.__('Shut down all of %1', name)}
                onClick={() => run(CommandIDs.shutdownAll)}
              />
            )}
          </>
        )}
      />
      {open && (
        <ul className="jex-List">
          {sessions.map(session => (
            <SessionRow
              key={session.id}
              session={session}
              memory={memory.get(session.id)}
              now={props.now}
              within={key}
            />
          ))}
        </ul>
      )}
    </section>
  );
}

function FilterBar(props: { filter: IFilter; onChange: (filter: IFilter) => void }): React.ReactElement {
  const { trans } = useServices();
  const { filter, onChange } = props;
  return (
    <div className="jex-FilterBar" role="search" aria-label={trans.__('Sessions to show')}>
      <input
        type="search"
        className="jex-Input"
        placeholder={trans.__('Search')}
        aria-label={trans.__('Search sessions')}
        title={trans.__(
          'Search names, tokens and kernels of sessions, and the code, errors and output of all that was run'
        )}
        value={filter.query}
        onChange={event => onChange({ ...filter, query: event.target.value })}
      />
      <select
        className="jex-Select"
        aria-label={trans.__('Which sessions')}
        value={filter.ended ? 'ended' : filter.show}
        onChange={event => onChange({ ...filter, ...chosen(event.target.value) })}
      >
        <option value="all">{trans.__('Active')}</option>
        <option value="busy">{trans.__('Busy')}</option>
        <option value="idle">{trans.__('Not busy')}</option>
        <option value="ended">{trans.__('With ended')}</option>
      </select>
      <select
        className="jex-Select"
        aria-label={trans.__('Order of sessions')}
        title={trans.__('Order of sessions')}
        value={filter.order}
        onChange={event => onChange({ ...filter, order: event.target.value as Order })}
      >
        <option value="busy">{trans.__('Busy first')}</option>
        <option value="newest">{trans.__('Newest first')}</option>
        <option value="name">{trans.__('By name')}</option>
      </select>
    </div>
  );
}

function chosen(value: string): Pick<IFilter, 'show' | 'ended'> {
  switch (value) {
    case 'busy':
    case 'idle':
      return { show: value, ended: false };
    default:
      return { show: 'all', ended: value === 'ended' };
  }
}

function Empty(props: { filtered: boolean }): React.ReactElement {
  const { commands, trans } = useServices();
  if (useIsNotConnected()) {
    return <NotConnected />;
  }
  if (props.filtered) {
    return <p className="jex-Empty">{trans.__('No matches')}</p>;
  }
  const button = (command: string, label: string): React.ReactElement => (
    <button className="jex-Button" onClick={() => void commands.execute(command)}>
      {label}
    </button>
  );
  return (
    <div className="jex-Empty">
      <p>{trans.__('No agent has a session on this server.')}</p>
      <ol className="jex-Steps">
        <li>
          {trans.__('Create a token. It limits what the agent can do, and you can revoke it.')}
          {button(CommandIDs.newToken, trans.__('New token…'))}
        </li>
        <li>{trans.__('Paste the text that appears with the token where the agent runs.')}</li>
        <li>
          {trans.__('Watch here what the agent runs. To work together in a notebook, share its kernel.')}
          {button(CommandIDs.attach, trans.__('Share a kernel…'))}
        </li>
      </ol>
      <p>{button(CommandIDs.help, trans.__('Help'))}</p>
    </div>
  );
}
