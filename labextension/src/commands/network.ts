/** Command on the network of a session. */

import { RULE_ARGS, text } from './args';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';

export function addNetworkCommand(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;

  commands.addCommand(CommandIDs.allowNetwork, {
    label: trans.__('Allow a Network Rule for a Session'),
    describedBy: RULE_ARGS,
    execute: args => attempt(model.client.allowNetwork(text(args, 'sessionId'), text(args, 'rule')))
  });
}
