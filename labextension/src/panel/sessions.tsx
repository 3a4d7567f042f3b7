/** The section of all sessions: search, filter, and the sessions of each owner. */

import * as React from 'react';

import type { IExecState } from '../model/state';
import { groups, type IFilter, type IGroup, NO_FILTER } from '../model/view';
import { SESSION_ARGS, text } from '../commands/args';
import { CommandIDs } from '../commands/ids';
import { wantedAnswer } from './answer';
import { expand } from './expand';
import { useRoving } from './roving';
import { isSearched, SearchResults } from './search';
import { type ISection, SectionWidget } from './section';
import { SessionRow } from './session';
import { type IServices, useExecState, useNow, useServices } from './services';
import { useWhileVisible } from './visible';
import { ownerName } from './words';

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
  const widget = new SectionWidget(sessionsSection, services, <Sessions />);
  commands.addCommand(CommandIDs.answerInput, {
    label: trans.__('Answer Code That Waits for Input'),
    describedBy: SESSION_ARGS,
    execute: async args => {
      await commands.execute(CommandIDs.open);
      expand(widget);
      wantedAnswer.want(text(args, 'sessionId'));
    }
  });
  return widget;
}

function Sessions(): React.ReactElement {
  const { model, settings } = useServices();
  const state = useExecState();
  const [filter, setFilter] = React.useState<IFilter>({ ...NO_FILTER, ended: settings.showEnded });
  const now = useNow(30);
  const roving = useRoving();
  React.useEffect(() => {
    const update = (): void => setFilter(each => ({ ...each, ended: settings.showEnded }));
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

  const element = React.useRef<HTMLDivElement>(null);
  const alive = React.useMemo(() => isAnyAlive(state), [state]);
  const measure = React.useCallback(() => {
    model.measure().catch(reason => console.warn('What sessions use could not be looked up.', reason));
  }, [model]);
  useWhileVisible(element, MEASURE_SECONDS, alive, measure);

  // What is typed is there at once; the rows follow.
  const [deferredState, deferredFilter] = [React.useDeferredValue(state), React.useDeferredValue(filter)];
  const shown = React.useMemo(() => groups(deferredState, deferredFilter), [deferredState, deferredFilter]);
  return (
    <div className="jex-Sessions" ref={element}>
      <FilterBar filter={filter} onChange={setFilter} />
      {shown.length === 0 && !isSearched(filter.query) && (
        <Empty filtered={isFiltered(deferredFilter)} loading={state.info === null} />
      )}
      <div className="jex-Groups" ref={roving.ref} onKeyDown={roving.onKeyDown} onFocus={roving.onFocus}>
        {shown.map(group => (
          <Group key={group.principal} group={group} state={state} now={now} />
        ))}
        <SearchResults text={filter.query} />
      </div>
    </div>
  );
}

function isAnyAlive(state: IExecState): boolean {
  return (
    state.connection.status === 'live' && [...state.sessions.values()].some(each => each.state !== 'ended')
  );
}

/** Whether it is for the filter that there is nothing: sessions that have ended are not looked for. */
function isFiltered(filter: IFilter): boolean {
  return filter.query !== '' || filter.show !== 'all';
}

function Group(props: { group: IGroup; state: IExecState; now: number }): React.ReactElement {
  const { trans } = useServices();
  const { info, memory } = props.state;
  const { principal, token, sessions } = props.group;
  const name = ownerName(trans, principal, token, info);
  const kind = token === null ? '' : trans.__('token, policy %1', token.policy);
  return (
    <section className="jex-Group" aria-label={trans.__('Sessions of %1', name)}>
      <h3 className="jex-Group-title" title={kind ? `${name} (${kind})` : name}>
        <span className="jex-Ellipsis">{name}</span>
        {kind && <span className="jex-Group-kind">{kind}</span>}
        <span className="jex-Count">{sessions.length}</span>
      </h3>
      <ul className="jex-List">
        {sessions.map(session => (
          <SessionRow key={session.id} session={session} memory={memory.get(session.id)} now={props.now} />
        ))}
      </ul>
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

function Empty(props: { filtered: boolean; loading: boolean }): React.ReactElement {
  const { trans } = useServices();
  if (props.loading) {
    return <p className="jex-Empty">{trans.__('Connecting…')}</p>;
  }
  if (props.filtered) {
    return <p className="jex-Empty">{trans.__('No session fits what you look for.')}</p>;
  }
  return (
    <div className="jex-Empty">
      <p>{trans.__('No agent has a session on this server.')}</p>
      <p>{trans.__('Sessions appear here as soon as an agent runs code, with everything it runs.')}</p>
    </div>
  );
}
