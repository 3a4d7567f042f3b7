/** Gives a section of the panel its room. */

import { MessageLoop } from '@lumino/messaging';
import { AccordionPanel, Widget } from '@lumino/widgets';

/** Open a section; does nothing while the section is in no panel. */
export function expand(section: Widget): void {
  const panel = section.parent;
  if (panel instanceof AccordionPanel) {
    panel.expand(panel.widgets.indexOf(section));
  }
}

/** A section with less height shows too little to be used. */
export const LEAST_PIXELS = 120;

/** Give an open section a share of the height, between 0 and 1; the other open ones share what is left, as far as it goes. */
export function resize(section: Widget, share: number): void {
  const panel = section.parent;
  if (!(panel instanceof AccordionPanel) || section.isHidden) {
    return;
  }
  // What was opened in this moment has no place yet, and what it is given before it has one is lost.
  MessageLoop.sendMessage(panel, Widget.Msg.FitRequest);
  const sizes = panel.relativeSizes();
  const at = panel.widgets.indexOf(section);
  const others = 1 - (sizes[at] ?? 0);
  if (others > 0) {
    const least = Math.min(LEAST_PIXELS / Math.max(1, panel.node.clientHeight), 1 - share);
    const rest = (size: number): number => Math.max(least, (size / others) * (1 - share));
    panel.setRelativeSizes(
      sizes.map((size, index) => (index === at ? share : panel.widgets[index]?.isHidden ? 0 : rest(size)))
    );
  }
}
