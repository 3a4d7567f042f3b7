/** Placeholder of a section while the server is out of reach. */

import * as React from 'react';

import { isOutOfReach } from '../model/state';
import { useExecState, useServices } from './services';

/** Nothing below a banner that gives the server's own reason. */
export function NotConnected(): React.ReactElement | null {
  const { trans } = useServices();
  const { connection } = useExecState();
  if (!isOutOfReach(connection)) {
    return <p className="jex-Empty">{trans.__('Connecting…')}</p>;
  }
  return connection.trouble === 'unreachable' ? (
    <p className="jex-Empty">{trans.__('Not connected')}</p>
  ) : null;
}

/** Return whether the server's answers are missing or may be out of date. */
export function useIsNotConnected(): boolean {
  const { info, connection } = useExecState();
  return info === null || isOutOfReach(connection);
}
