/** Open ports of a session: apps that a person can look at in a tab of the browser. */

import * as React from 'react';

import type { ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { isAlive } from '../model/view';
import { oneLine } from '../safety/text';
import { useServices } from './services';

export function OpenPorts({ session }: { session: ISession }): React.ReactElement | null {
  const { commands, trans } = useServices();
  /** Why there is no link, by port. */
  const [reasons, setReasons] = React.useState<ReadonlyMap<number, string>>(new Map());
  const ports = session.open_ports ?? [];
  if (ports.length === 0 || !isAlive(session)) {
    return null;
  }
  const open = async (port: number): Promise<void> => {
    const args = { sessionId: session.id, port: String(port) };
    const reason: unknown = await commands.execute(CommandIDs.openPort, args);
    if (typeof reason === 'string') {
      setReasons(known => new Map(known).set(port, oneLine(reason, 500)));
    }
  };
  return (
    <div className="jex-Note jex-Ports">
      {trans.__('Open ports:')}{' '}
      <ul>
        {ports.map(port => (
          <li key={port}>
            {port}{' '}
            {!reasons.has(port) && (
              <button
                className="jex-Link"
                title={trans.__('Open the app at port %1 in a new tab', port)}
                onClick={() => void open(port)}
              >
                {trans.__('Open')}
              </button>
            )}
            <button
              className="jex-Link"
              title={trans.__('Close port %1', port)}
              onClick={() =>
                void commands.execute(CommandIDs.closePort, { sessionId: session.id, port: String(port) })
              }
            >
              {trans.__('Close')}
            </button>
            {reasons.has(port) && (
              <span role="status">{trans.__('No link for this browser: %1', reasons.get(port))}</span>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
