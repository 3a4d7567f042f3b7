/** View of one session: its use, a time axis, and each execution with code and outputs. */

import * as React from 'react';

import type { IExecution, ISession } from '../api/types';
import { messageOf } from '../api/errors';
import { merged } from '../model/merged';
import { EMPTY, isOpen } from '../model/state';
import { groups, isAlive, NO_FILTER } from '../model/view';
import { CommandIDs } from '../commands/ids';
import { kernelWords } from '../kernelNames';
import { oneLine } from '../safety/text';
import { NotConnected, useIsNotConnected } from '../panel/notConnected';
import { useRoving } from '../panel/roving';
import { useExecState, useNow, useServices } from '../panel/services';
import { Pages, Timeline, UNLISTED } from '../panel/timeline';
import { useWhileVisible } from '../panel/visible';
import { isolationWords, ownerName, sessionName, sessionStateWords, sizeWords } from '../words';
import { fittingMinutes, type IRange, RANGES } from './axis';
import { Usage } from './charts';
import { Lane, laneWords, Ticks } from './lane';

/** As many sessions have a line of their own. */
const MAX_LANES = 50;
const MEASURE_SECONDS = 10;
const NONE: readonly IExecution[] = [];

export function SessionView({ sessionId }: { sessionId: string }): React.ReactElement {
  const { model, trans } = useServices();
  const state = useExecState();
  const session = useSession(sessionId);
  React.useEffect(() => model.watch(sessionId), [model, sessionId]);
  const executions = state.executions.get(sessionId) ?? NONE;
  const element = React.useRef<HTMLDivElement>(null);
  const roving = useRoving();
  const [range, chooser] = useRange(
    typeof session === 'string' ? null : (session?.created_at ?? null),
    executions.some(isOpen)
  );
  if (session === null || typeof session === 'string') {
    return <p className="jex-Empty">{session === null ? trans.__('Loading…') : oneLine(session, 500)}</p>;
  }
  const show = (execution: IExecution): void => {
    const row = element.current?.querySelector<HTMLElement>(`[data-roving="execution ${execution.id}"]`);
    if (row?.getAttribute('aria-expanded') === 'false') {
      row.click();
    }
    row?.focus();
    row?.scrollIntoView({ block: 'start' });
  };
  const owner = state.tokens.get(session.owner) ?? null;
  return (
    <div className="jex-View-content" ref={element}>
      <div className="jex-View-header">
        <h1 className="jex-View-title">
          <span className="jex-Dot" data-tone={session.state} />
          {sessionName(session)}
        </h1>
        <span className="jex-Row-detail">
          <span>{sessionStateWords(trans, session.state)}</span>
          <span>{ownerName(trans, session.owner, owner, state.info)}</span>
          <span className={session.isolation === 'none' ? 'jex-Warn' : ''}>
            {isolationWords(trans, session.isolation)}
          </span>
          <span>{kernelWords(trans, oneLine(session.kernel_name, 60))}</span>
        </span>
        {chooser}
      </div>
      <section className="jex-View-time" aria-label={trans.__('Over time')}>
        <Usage session={session} range={range} />
        <figure className="jex-Chart">
          <figcaption>
            <span className="jex-Chart-name">{trans.__('Runs')}</span>
            <span className="jex-Chart-limit">{laneWords(trans, executions, range)}</span>
          </figcaption>
          <Lane executions={executions} range={range} onChoose={show} />
          <Ticks range={range} />
        </figure>
      </section>
      <section aria-label={trans.__('Runs')}>
        <div ref={roving.ref} onKeyDown={roving.onKeyDown} onFocus={roving.onFocus}>
          <Timeline session={session} within="" />
        </div>
      </section>
    </div>
  );
}

/** All sessions that live, one line each. */
export function AllView(): React.ReactElement {
  const { model, trans } = useServices();
  const state = useExecState();
  const element = React.useRef<HTMLDivElement>(null);
  const isNotConnected = useIsNotConnected();
  const sessions = groups(state, NO_FILTER).flatMap(group => group.sessions);
  const running = state.open.size > 0;
  const [range, chooser] = useRange(null, running);
  const measure = React.useCallback(() => {
    model.measure().catch(reason => console.warn('What sessions use could not be looked up.', reason));
  }, [model]);
  useWhileVisible(element, MEASURE_SECONDS, sessions.length > 0, measure);
  return (
    <div className="jex-View-content" ref={element}>
      <div className="jex-View-header">
        <h1 className="jex-View-title">{trans.__('All sessions')}</h1>
        <span className="jex-Row-detail">{trans._n('One session', '%1 sessions', sessions.length)}</span>
        {chooser}
      </div>
      {sessions.length === 0 ? (
        isNotConnected ? (
          <NotConnected />
        ) : (
          <p className="jex-Empty">{trans.__('No agent has a session on this server.')}</p>
        )
      ) : (
        <div className="jex-Lanes">
          {sessions.slice(0, MAX_LANES).map(session => (
            <SessionLane key={session.id} session={session} range={range} />
          ))}
          <span />
          <Ticks range={range} />
        </div>
      )}
      {sessions.length > MAX_LANES && (
        <p className="jex-Note">{trans.__('There are more sessions than are shown here.')}</p>
      )}
      {!isNotConnected && <AllRuns />}
    </div>
  );
}

/** Runs of all sessions by time, those of sessions that have ended meanwhile among them. */
function AllRuns(): React.ReactElement | null {
  const { model, trans } = useServices();
  const state = useExecState();
  const roving = useRoving();
  const { sessions, executions, whole } = state;
  const listed = React.useMemo(() => {
    const known = groups({ ...EMPTY, sessions }, { ...NO_FILTER, ended: true }).flatMap(
      each => each.sessions
    );
    const rank = (each: ISession): string => `${isAlive(each) ? 1 : 0}${each.created_at}`;
    return known.sort((a, b) => rank(b).localeCompare(rank(a))).slice(0, MAX_LANES);
  }, [sessions]);
  const { runs, behind } = React.useMemo(
    () =>
      merged(
        { executions, whole },
        listed.map(each => each.id)
      ),
    [executions, whole, listed]
  );
  const earlier = React.useCallback(() => Promise.all(behind.map(id => model.earlier(id))), [model, behind]);
  const whereOf = ({ session_id: id }: IExecution): string => {
    const session = sessions.get(id);
    return session === undefined ? id : sessionName(session);
  };
  return listed.length === 0 ? null : (
    <section className="jex-View-runs" aria-label={trans.__('Runs')}>
      {listed.map(each => (
        <Watched key={each.id} sessionId={each.id} />
      ))}
      <div ref={roving.ref} onKeyDown={roving.onKeyDown} onFocus={roving.onFocus}>
        <Pages
          executions={runs}
          isWhole={behind.length === 0}
          earlier={earlier}
          sessionOf={({ session_id: id }) => sessions.get(id) ?? UNLISTED}
          whereOf={whereOf}
          within=""
          expandNewest={false}
          nothing={trans.__('Nothing has been run yet.')}
        />
      </div>
    </section>
  );
}

/** Has a session's runs listed while it is there. */
function Watched({ sessionId }: { sessionId: string }): null {
  const { model } = useServices();
  React.useEffect(() => model.watch(sessionId), [model, sessionId]);
  return null;
}

function SessionLane({ session, range }: { session: ISession; range: IRange }): React.ReactElement {
  const { model, commands, trans } = useServices();
  const state = useExecState();
  React.useEffect(() => model.watch(session.id), [model, session.id]);
  const open = (): void => void commands.execute(CommandIDs.openView, { sessionId: session.id });
  const memory = state.memory.get(session.id);
  const token = state.tokens.get(session.owner) ?? null;
  return (
    <>
      <button className="jex-Row-main" onClick={open} title={trans.__('Open %1', sessionName(session))}>
        <span className="jex-Dot" data-tone={session.state} />
        <span className="jex-Row-text">
          <span className="jex-Row-name jex-Ellipsis">{sessionName(session)}</span>
          <span className="jex-Row-detail jex-Ellipsis">
            <span>{sessionStateWords(trans, session.state)}</span>
            <span>{ownerName(trans, session.owner, token, state.info)}</span>
            {memory !== undefined && <span>{sizeWords(memory)}</span>}
          </span>
        </span>
      </button>
      <Lane executions={state.executions.get(session.id) ?? NONE} range={range} onChoose={open} />
    </>
  );
}

/** The time to show up to now, and what chooses it. */
function useRange(sinceIso: string | null, running: boolean): [IRange, React.ReactElement] {
  const { trans } = useServices();
  const now = useNow(running ? 1 : 5);
  const [chosen, setChosen] = React.useState<number | null>(null);
  const minutes = chosen ?? (sinceIso === null ? 15 : fittingMinutes(sinceIso, now));
  const range = { from: now - minutes * 60_000, to: now };
  const chooser = (
    <select
      className="jex-Select"
      aria-label={trans.__('Time to show')}
      value={minutes}
      onChange={event => setChosen(Number(event.target.value))}
    >
      {RANGES.map(each => (
        <option key={each} value={each}>
          {trans.__('Last %1 minutes', each)}
        </option>
      ))}
    </select>
  );
  return [range, chooser];
}

/** A session, also one that has ended; null while it is looked up, and why it cannot be. */
function useSession(sessionId: string): ISession | string | null {
  const { model } = useServices();
  const state = useExecState();
  const [past, setPast] = React.useState<ISession | string | null>(null);
  const known = state.sessions.get(sessionId);
  const isMissing = known === undefined && state.info !== null;
  React.useEffect(() => {
    if (isMissing) {
      model.client.session(sessionId).then(setPast, (error: unknown) => setPast(messageOf(error)));
    }
  }, [model, sessionId, isMissing]);
  return known ?? past;
}
