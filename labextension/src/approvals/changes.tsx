/** Changes of a person to code, line by line. */

import * as React from 'react';

import { useServices } from '../panel/services';
import { reveal } from '../safety/text';
import { diffLines, folded } from './diff';

const SIGNS = { same: ' ', removed: '−', added: '+' } as const;

/** As many are shown; nobody reads more. */
const MAX_LINES = 400;

export function Changes(props: { before: string; after: string; label: string }): React.ReactElement {
  const { trans } = useServices();
  const lines = React.useMemo(
    () => folded(diffLines(props.before, props.after)),
    [props.before, props.after]
  );
  // For those who do not see the signs.
  const names = { same: '', removed: trans.__('removed: '), added: trans.__('added: ') } as const;
  return (
    <div className="jex-Changes" role="group" aria-label={props.label} tabIndex={0}>
      <ol className="jex-List">
        {lines.slice(0, MAX_LINES).map((line, at) =>
          line.kind === 'gap' ? (
            <li key={at} className="jex-Change" data-kind="gap">
              {trans._n('… one line unchanged', '… %1 lines unchanged', line.lines)}
            </li>
          ) : (
            <li key={at} className="jex-Change" data-kind={line.kind}>
              <span className="jex-Change-sign" aria-hidden="true">
                {SIGNS[line.kind]}
              </span>
              <span className="jex-Hidden">{names[line.kind]}</span>
              <code>{reveal(line.text)}</code>
            </li>
          )
        )}
      </ol>
      {lines.length > MAX_LINES && (
        <p className="jex-Note">{trans.__('There are more changes than are shown here.')}</p>
      )}
    </div>
  );
}
