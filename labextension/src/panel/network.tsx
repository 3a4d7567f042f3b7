/** Network of a session with rules: what was refused, with a button that allows it, and the newest requests. */

import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { INetworkRequest, ISession, ISessionNetwork } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { isAlive } from '../model/view';
import { oneLine } from '../safety/text';
import { useOpened } from './opened';
import { useNow, useServices } from './services';
import { useWhileVisible } from './visible';
import { ageWords, requestName, requestWords } from '../words';

const LOOK_SECONDS = 5;
/** Shown at once, and more with each click. */
const PAGE = 20;

export function Network({ session }: { session: ISession }): React.ReactElement | null {
  const { commands, model, trans } = useServices();
  const [network, setNetwork] = React.useState<ISessionNetwork | null>(null);
  const [open, setOpen] = useOpened(`network ${session.id}`, false);
  const element = React.useRef<HTMLDivElement>(null);
  const toggle = React.useRef<HTMLButtonElement>(null);
  const running = isAlive(session) && session.isolation === 'sandbox' && network?.network !== 'none';
  const wanted = session.wanted_rules ?? [];
  const look = React.useCallback(() => {
    model.client
      .network(session.id)
      .then(setNetwork, reason => console.warn('The network of a session could not be looked up.', reason));
    // Anew with each refusal, which the change feed reports.
  }, [model, session.id, wanted.join()]);
  useWhileVisible(element, LOOK_SECONDS, running, look);
  const allow = async (rule: string): Promise<void> => {
    await commands.execute(CommandIDs.allowNetwork, { sessionId: session.id, rule });
    toggle.current?.focus(); // the button that was pressed goes away
  };
  if (!running) {
    return null;
  }
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <div className="jex-Note jex-Network" ref={element}>
      {wanted.length > 0 && (
        <>
          {trans.__('Refused by the network rules:')}
          <ul>
            {wanted.map(rule => (
              <li key={rule}>
                <span className="jex-Warn">{oneLine(rule, 500)}</span>{' '}
                <button
                  className="jex-Link"
                  title={trans.__('Allow %1 until this session ends', oneLine(rule, 500))}
                  onClick={() => void allow(rule)}
                >
                  {trans.__('Allow for This Session')}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {network?.network === 'rules' && (
        <>
          <button
            ref={toggle}
            className="jex-Network-toggle"
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          >
            <Caret.react tag="span" className="jex-Caret" />
            {trans.__('Network requests: %1', network.requests.length)}
          </button>
          {open && <Requests network={network} />}
        </>
      )}
    </div>
  );
}

function Requests({ network }: { network: ISessionNetwork }): React.ReactElement {
  const { trans } = useServices();
  const [shown, setShown] = React.useState(PAGE);
  const now = useNow(30);
  const newest = [...network.requests].reverse();
  return (
    <div className="jex-Requests">
      <p>{trans.__('Rules: %1', oneLine(network.rules.join(', '), 2000) || trans.__('none'))}</p>
      {network.added_rules.length > 0 && (
        <p>{trans.__('Allowed for this session: %1', oneLine(network.added_rules.join(', '), 2000))}</p>
      )}
      <ol aria-label={trans.__('Network requests, newest first')}>
        {newest.slice(0, shown).map((request, index) => (
          <Request key={newest.length - index} request={request} now={now} />
        ))}
      </ol>
      {newest.length > shown && (
        <button className="jex-Button" onClick={() => setShown(shown + PAGE)}>
          {trans.__('Show earlier')}
        </button>
      )}
    </div>
  );
}

function Request(props: { request: INetworkRequest; now: number }): React.ReactElement {
  const { request, now } = props;
  const { trans } = useServices();
  return (
    <li data-verdict={request.verdict}>
      <span className="jex-Request-name">
        <span className={request.verdict === 'allowed' ? '' : 'jex-Warn'}>{requestName(trans, request)}</span>
        <time className="jex-Age" dateTime={request.at} title={new Date(request.at).toLocaleString()}>
          {ageWords(trans, request.at, now)}
        </time>
      </span>
      <span>{requestWords(trans, request)}</span>
    </li>
  );
}
