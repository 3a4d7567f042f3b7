/** Placeholder of a section until the server has answered. */

import * as React from 'react';

import { isOutOfReach } from '../model/state';
import { useExecState, useServices } from './services';

/** Nothing below a banner that says why there is no answer. */
export function NotYet(): React.ReactElement | null {
  const { trans } = useServices();
  const { connection } = useExecState();
  return isOutOfReach(connection) ? null : <p className="jex-Empty">{trans.__('Connecting…')}</p>;
}
