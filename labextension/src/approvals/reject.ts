/** The command that rejects an execution, which needs no panel. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { EXECUTION_ARGS, text } from '../commands/args';
import { attempt } from '../commands/context';
import { CommandIDs } from '../commands/ids';
import type { IExecModel } from '../tokens';
import { decide } from './calls';

export function addRejectCommand(
  commands: CommandRegistry,
  model: IExecModel,
  trans: TranslationBundle
): void {
  commands.addCommand(CommandIDs.reject, {
    label: trans.__('Reject Code That Waits for Approval…'),
    describedBy: EXECUTION_ARGS,
    execute: async args => {
      const id = text(args, 'executionId');
      const answer = await InputDialog.getText({
        title: trans.__('Reject this code?'),
        label: trans.__('Reason, for the agent (optional)'),
        okLabel: trans.__('Reject')
      });
      if (!answer.button.accept) {
        return;
      }
      const reason = (answer.value ?? '').trim();
      if (await attempt(decide(model.client, id, { decision: 'reject', reason }))) {
        Notification.info(trans.__('Rejected.'), { autoClose: 3000 });
      }
    }
  });
}
