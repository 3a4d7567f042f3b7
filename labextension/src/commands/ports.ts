/** Commands on the open ports of a session. */

import { PORT_ARGS, text } from './args';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';

export function addPortCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;

  commands.addCommand(CommandIDs.openPort, {
    label: trans.__('Open Port of a Session in a New Tab'),
    describedBy: PORT_ARGS,
    /** Returns why there is no link; undefined if there is one. */
    execute: async args => {
      const opened = await attempt(
        model.client.openPort(text(args, 'sessionId'), Number(text(args, 'port')))
      );
      const url = opened?.browser_url ?? null;
      if (url !== null && /^https?:\/\//.test(url)) {
        // The app gets no handle of this window, and does not learn its address.
        window.open(url, '_blank', 'noopener,noreferrer');
      }
      return opened?.browser_reason ?? undefined;
    }
  });

  commands.addCommand(CommandIDs.closePort, {
    label: trans.__('Close Port of a Session'),
    describedBy: PORT_ARGS,
    execute: args => attempt(model.client.closePort(text(args, 'sessionId'), Number(text(args, 'port'))))
  });
}
