/** The menu of a session. */

import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';

/** Return what opens a menu of these commands; null is a line between two. */
export function menuOpener(
  commands: CommandRegistry,
  entries: readonly (string | null)[]
): (sessionId: string, x: number, y: number) => void {
  const menu = new MenuSvg({ commands });
  return (sessionId, x, y) => {
    menu.clearItems();
    for (const command of entries) {
      menu.addItem(command === null ? { type: 'separator' } : { command, args: { sessionId } });
    }
    menu.open(x, y);
  };
}
