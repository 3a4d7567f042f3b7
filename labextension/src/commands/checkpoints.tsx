/** Commands on checkpoints of a session: make, restore, branch, delete. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import { addIcon, deleteIcon, undoIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import * as React from 'react';

import { ApiError, messageOf } from '../api/errors';
import type { ICheckpoint, IExecution, ISession } from '../api/types';
import { branchIcon } from '../icons';
import { canBranch, canCheckpoint, HistoryTree } from '../model/history';
import { checkpointName, runName } from '../panel/historyWords';
import { sessionName } from '../words';
import { oneLine } from '../safety/text';
import { CHECKPOINT_ARGS, SESSION_ARGS, text } from './args';
import { confirmed } from './confirmed';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';

/** Longer names are refused. */
const MAX_NAME_CHARACTERS = 256;
/** Runs of a session that is not shown are listed for the question before a restore. */
const LISTED_RUNS = 200;
/** Runs that the question before a restore names. */
const NAMED_RUNS = 10;
/** How long a message about something that has worked stands. */
const DONE_MS = 5000;

export function addCheckpointCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;
  const known = (args: ReadonlyPartialJSONObject): ISession | undefined =>
    typeof args.sessionId === 'string' ? model.state.sessions.get(args.sessionId) : undefined;
  const isPossible = (args: ReadonlyPartialJSONObject): boolean => {
    const session = known(args);
    return session !== undefined && canCheckpoint(model.state.info, session);
  };
  /** Return the checkpoint of the arguments; without one, the person chooses. */
  const chosen = async (args: ReadonlyPartialJSONObject, title: string): Promise<ICheckpoint | undefined> => {
    const all = await attempt(model.client.checkpoints(text(args, 'sessionId')));
    if (all === undefined || typeof args.checkpoint !== 'string') {
      return all && choose(trans, title, all);
    }
    const found = all.find(each => each.id === args.checkpoint);
    if (found === undefined) {
      Notification.error(trans.__('This checkpoint has been deleted, or has expired.'), {
        autoClose: 10_000
      });
    }
    return found;
  };

  commands.addCommand(CommandIDs.checkpoint, {
    label: trans.__('Make Checkpoint…'),
    caption: trans.__('Keep the variables and files of the session, to restore them later'),
    icon: addIcon,
    describedBy: SESSION_ARGS,
    isVisible: isPossible,
    execute: async args => {
      const sessionId = text(args, 'sessionId');
      const others = await attempt(model.client.checkpoints(sessionId));
      const wish =
        others &&
        (await InputDialog.getText({
          title: trans.__('Make a checkpoint of the session'),
          label: trans.__('Name of the checkpoint'),
          text: newName(trans, others),
          okLabel: trans.__('Make Checkpoint')
        }));
      if (wish?.button.accept) {
        const name = (wish.value ?? '').trim().slice(0, MAX_NAME_CHARACTERS);
        await attempt(make(context, sessionId, name));
      }
    }
  });

  commands.addCommand(CommandIDs.restore, {
    label: trans.__('Restore to a Checkpoint…'),
    caption: trans.__('Give the session the variables and files of a checkpoint'),
    icon: undoIcon,
    describedBy: CHECKPOINT_ARGS,
    isVisible: isPossible,
    execute: async args => {
      const session = known(args);
      if (session?.state === 'busy') {
        Notification.error(
          trans.__('“%1” runs code. Wait for its end or interrupt it, and try again.', sessionName(session)),
          { autoClose: 10_000 }
        );
        return;
      }
      if (session === undefined) {
        return;
      }
      const checkpoint = await chosen(args, trans.__('Restore the session to a checkpoint'));
      if (checkpoint === undefined || !(await isRestoreWanted(context, session, checkpoint))) {
        return;
      }
      if (await attempt(model.client.restore(checkpoint.session_id, checkpoint.id))) {
        Notification.success(
          trans.__('“%1” was restored to “%2”.', sessionName(session), checkpointName(trans, checkpoint)),
          { autoClose: DONE_MS }
        );
      }
    }
  });

  commands.addCommand(CommandIDs.branch, {
    label: trans.__('Branch'),
    caption: trans.__('Start another session with the variables and files of this one'),
    icon: branchIcon,
    describedBy: CHECKPOINT_ARGS,
    isVisible: args => {
      const session = known(args);
      return session !== undefined && canBranch(model.state.info, session);
    },
    execute: async args => {
      const checkpoint = typeof args.checkpoint === 'string' ? args.checkpoint : null;
      const [branch] = (await attempt(model.client.branch(text(args, 'sessionId'), checkpoint))) ?? [];
      if (branch !== undefined) {
        Notification.success(trans.__('The session “%1” was started.', sessionName(branch)), {
          autoClose: DONE_MS,
          actions: [
            {
              label: trans.__('Show'),
              callback: () => void commands.execute(CommandIDs.showSession, { sessionId: branch.id })
            }
          ]
        });
      }
    }
  });

  commands.addCommand(CommandIDs.deleteCheckpoint, {
    label: trans.__('Delete a Checkpoint…'),
    icon: deleteIcon,
    describedBy: CHECKPOINT_ARGS,
    isVisible: isPossible,
    execute: async args => {
      const checkpoint = await chosen(args, trans.__('Delete a checkpoint of the session'));
      if (checkpoint !== undefined) {
        const title = trans.__('Delete the checkpoint “%1”?', checkpointName(trans, checkpoint));
        const body = trans.__('The session can no longer be restored to it. It goes on as it is.');
        if (await confirmed(title, body, trans.__('Delete'))) {
          await attempt(model.client.deleteCheckpoint(checkpoint.session_id, checkpoint.id));
        }
      }
    }
  });
}

/** Make a checkpoint; if something cannot be taken along, ask whether to make it without. */
async function make({ model, trans }: ICommandContext, sessionId: string, name: string): Promise<void> {
  try {
    await model.client.checkpoint(sessionId, name, false);
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 'checkpoint_hindered')) {
      throw error;
    }
    const body = (
      <div className="jex-Question">
        <p>{oneLine(messageOf(error), 2000)}</p>
        <p>{trans.__('The session itself keeps these things. After a restore they are missing.')}</p>
      </div>
    );
    if (
      await confirmed(
        trans.__('Make the checkpoint without these things?'),
        body,
        trans.__('Make Without Them')
      )
    ) {
      await model.client.checkpoint(sessionId, name, true);
    }
  }
}

/** Return a name that no checkpoint has. */
function newName(trans: TranslationBundle, others: readonly ICheckpoint[]): string {
  const taken = new Set(others.map(each => each.name));
  let number = others.length + 1;
  while (taken.has(trans.__('Checkpoint %1', number))) {
    number += 1;
  }
  return trans.__('Checkpoint %1', number);
}

async function choose(
  trans: TranslationBundle,
  title: string,
  all: readonly ICheckpoint[]
): Promise<ICheckpoint | undefined> {
  if (all.length === 0) {
    Notification.info(trans.__('The session has no checkpoints.'), { autoClose: DONE_MS });
    return undefined;
  }
  // Numbers, since several may have one name; the newest first.
  const items = all.map((each, index) => `${index + 1}: ${checkpointName(trans, each)}`).reverse();
  const choice = await InputDialog.getItem({ title, label: trans.__('Checkpoint'), items });
  return choice.button.accept && choice.value !== null
    ? all[Number.parseInt(choice.value, 10) - 1]
    : undefined;
}

/** Ask if runs would be left, and say which. */
async function isRestoreWanted(
  { model, trans, attempt }: ICommandContext,
  session: ISession,
  checkpoint: ICheckpoint
): Promise<boolean> {
  const shown = model.state.executions.get(session.id);
  const runs = shown ?? (await attempt(model.client.executions(session.id, LISTED_RUNS)))?.slice().reverse();
  if (runs === undefined) {
    return false;
  }
  const left = new HistoryTree(runs, session.restores ?? []).leftBy(checkpoint);
  const named = runs.filter(each => left.has(each.id) && each.started_at !== null);
  if (named.length === 0) {
    return true;
  }
  const isWhole = shown === undefined ? runs.length < LISTED_RUNS : model.state.whole.has(session.id);
  const isAll = isWhole || runs.some(each => each.id === checkpoint.after);
  const name = checkpointName(trans, checkpoint);
  return confirmed(
    trans.__('Restore “%1” to “%2”?', sessionName(session), name),
    <LeftRuns trans={trans} runs={named} isAll={isAll} withFiles={checkpoint.files} />,
    trans.__('Restore')
  );
}

/** Body of the question before a restore. */
function LeftRuns(props: {
  trans: TranslationBundle;
  /** The newest first. */
  runs: readonly IExecution[];
  /** False if there may be earlier ones. */
  isAll: boolean;
  withFiles: boolean;
}): React.ReactElement {
  const { trans, runs } = props;
  const more = runs.length - NAMED_RUNS;
  return (
    <div className="jex-Question">
      <p>{trans.__('The effects of these runs on the session are undone:')}</p>
      <ul>
        {runs.slice(0, NAMED_RUNS).map(each => (
          <li key={each.id}>
            <code>{runName(trans, each)}</code>
          </li>
        ))}
      </ul>
      {(more > 0 || !props.isAll) && (
        <p>{more > 0 ? trans._n('and one more', 'and %1 more', more) : trans.__('and earlier ones')}</p>
      )}
      <p>
        {props.withFiles
          ? trans.__('Files of the session are replaced. Queued code is cancelled. Records and outputs stay.')
          : trans.__('Files stay as they are. Queued code is cancelled. Records and outputs stay.')}
      </p>
    </div>
  );
}
