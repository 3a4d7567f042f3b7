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
    // The menu takes the focus: it goes back to where it was, before what is chosen asks for it.
    const before = document.activeElement;
    const back = (): void => {
      menu.aboutToClose.disconnect(back);
      if (menu.node.contains(document.activeElement) && before instanceof HTMLElement) {
        before.focus();
      }
    };
    menu.aboutToClose.connect(back);
    menu.open(x, y);
  };
}
