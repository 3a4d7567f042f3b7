/** Note on code that a person has edited before it ran, with the changes. */

import * as React from 'react';

import { messageOf } from '../api/errors';
import type { IExecution } from '../api/types';
import { useServices } from '../panel/services';
import { oneLine } from '../safety/text';
import { Changes } from './changes';

/** Lists have no more of code than this. */
const LISTED_CODE_CHARS = 4096;

export function Edited({ execution }: { execution: IExecution }): React.ReactElement | null {
  const { model, trans } = useServices();
  const before = execution.approval?.original_code ?? null;
  const isCut = execution.code.length >= LISTED_CODE_CHARS;
  const [after, setAfter] = React.useState<string | null>(isCut ? null : execution.code);
  const [problem, setProblem] = React.useState<string | null>(null);
  React.useEffect(() => {
    if (before !== null && isCut) {
      model.client.execution(execution.id).then(
        ({ code }) => setAfter(code),
        (error: unknown) => setProblem(messageOf(error))
      );
    }
  }, [model, execution.id, before, isCut]);
  if (before === null) {
    return null;
  }
  const who = oneLine(execution.approval?.decided_by ?? '', 80) || trans.__('a person');
  return (
    <>
      <p className="jex-Note">{trans.__('Edited by %1 before it ran:', who)}</p>
      {after !== null && (
        <Changes before={before} after={after} label={trans.__('What %1 has changed', who)} />
      )}
      {problem !== null && (
        <p className="jex-Note" role="alert">
          {oneLine(problem, 500)}
        </p>
      )}
      <p className="jex-Note">{trans.__('The code that ran:')}</p>
    </>
  );
}
