/** Opens a section of the panel. */

import { AccordionPanel, type Widget } from '@lumino/widgets';

/** Does nothing while the section is in no panel. */
export function expand(section: Widget): void {
  const panel = section.parent;
  if (panel instanceof AccordionPanel) {
    panel.expand(panel.widgets.indexOf(section));
  }
}
