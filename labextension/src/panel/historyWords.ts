/** Checkpoints, restores and runs of a session's history in words: pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { ICheckpoint, IExecution, IRestore } from '../api/types';
import { oneLine } from '../safety/text';
import { headline } from '../words';

export function checkpointName(trans: TranslationBundle, checkpoint: ICheckpoint): string {
  // The server names an automatic one by the id of a run, which says nothing to a person.
  return checkpoint.automatic
    ? trans.__('Automatic, %1', new Date(checkpoint.created_at).toLocaleTimeString())
    : oneLine(checkpoint.name, 120) || checkpoint.id;
}

/** An execution by its number and code. */
export function runName(trans: TranslationBundle, execution: IExecution): string {
  return `[${execution.execution_count ?? ' '}] ${headline(execution.code) || trans.__('(no code)')}`;
}

/** The place of a state among a session's executions, by the last one before it. */
export function afterWords(
  trans: TranslationBundle,
  after: string | null,
  executions: readonly IExecution[] | undefined
): string {
  if (after === null) {
    return trans.__('before the first run');
  }
  const count = executions?.find(each => each.id === after)?.execution_count ?? null;
  return count === null ? trans.__('after an earlier run') : trans.__('after [%1]', count);
}

export function restoreWords(
  trans: TranslationBundle,
  restore: IRestore,
  checkpoints: readonly ICheckpoint[],
  executions: readonly IExecution[] | undefined
): string {
  const checkpoint = checkpoints.find(each => each.id === restore.checkpoint);
  return checkpoint === undefined
    ? trans.__('restored to the state %1', afterWords(trans, restore.after, executions))
    : trans.__('restored to “%1”', checkpointName(trans, checkpoint));
}

/** Something that a checkpoint does not have, such as a thread; the code has named it. */
export function lostWords(trans: TranslationBundle, thing: ICheckpoint['lost'][number]): string {
  return trans.__('Without %1', oneLine(`${thing.kind}: ${thing.name}`, 300));
}
