/** List of what a person has approved for a whole session; each entry can be withdrawn. */

import * as React from 'react';

import type { ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { useServices } from './services';
import { kindWords } from '../words';

/** The newest; the menu of the session withdraws all. */
const SHOWN = 20;

export function ApprovedKinds({ session }: { session: ISession }): React.ReactElement | null {
  const { commands, trans } = useServices();
  const kinds = session.approved_kinds;
  if (kinds.length === 0) {
    return null;
  }
  return (
    <div className="jex-Note jex-Approved">
      {trans.__('Approved until this session ends:')}{' '}
      <ul>
        {kinds.slice(-SHOWN).map(kind => (
          <li key={kind}>
            {kindWords(trans, kind)}{' '}
            <button
              className="jex-Link"
              title={trans.__('Ask again about %1', kindWords(trans, kind))}
              onClick={() => void commands.execute(CommandIDs.askAgain, { sessionId: session.id, kind })}
            >
              {trans.__('Ask again')}
            </button>
          </li>
        ))}
        {kinds.length > SHOWN && <li>{trans.__('%1 more', kinds.length - SHOWN)}</li>}
      </ul>
    </div>
  );
}
